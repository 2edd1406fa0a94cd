import org.apache.rocketmq.store.ha.DefaultHAService;

/** A broker without replicas. RocketMQ's own service would listen for them on all addresses of the machine. */
public final class NoReplicas extends DefaultHAService {
  @Override
  public void start() {}

  @Override
  public void shutdown() {}
}
