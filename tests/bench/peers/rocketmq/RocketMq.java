import static java.nio.charset.StandardCharsets.US_ASCII;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.List;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RocketMQ for make bench-peers: both ends of it. The name server and the broker are started by rocketmq_timers.py.
 *
 * <pre>
 * java RocketMq feed NAMES VALUE    reads lines "ID DUE_MS", exits 0 when the broker has confirmed each of them
 * java RocketMq drain NAMES         prints a line "ID" for each message that is released
 * </pre>
 */
public final class RocketMq {
  private static final String TOPIC = "due";
  private static final int IN_FLIGHT = 2_000;
  private static final int THREADS = 20;
  private static final long PAUSE_MS = 100;
  /** By default 30 s, and for so long a consumer would not see a new topic or a broker that is back. */
  private static final int POLL_NAMES_MS = 1_000;
  private static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);
  private static final Semaphore FREE = new Semaphore(IN_FLIGHT);

  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("feed")) {
      feed(arguments[1], arguments[2]);
    } else {
      drain(arguments[1]);
    }
  }

  private static void feed(String names, String value) throws Exception {
    DefaultMQProducer producer = new DefaultMQProducer("bench-feed");
    producer.setNamesrvAddr(names);
    producer.setPollNameServerInterval(POLL_NAMES_MS);
    producer.setRetryTimesWhenSendAsyncFailed(0); // it is sent again here, until it is confirmed
    producer.start();
    byte[] body = value.getBytes(US_ASCII);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, US_ASCII));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] parts = line.split(" ");
      Message message = new Message(TOPIC, "", parts[0], body);
      message.setDeliverTimeMs(Long.parseLong(parts[1]));
      FREE.acquire();
      send(producer, message);
    }
    FREE.acquire(IN_FLIGHT);
    producer.shutdown();
    System.exit(0); // threads of the client keep the process
  }

  private static void send(DefaultMQProducer producer, Message message) {
    SendCallback settled =
        new SendCallback() {
          @Override
          public void onSuccess(SendResult result) {
            if (result.getSendStatus() == SendStatus.SEND_OK) {
              FREE.release();
            } else {
              again(producer, message, result.getSendStatus().toString());
            }
          }

          @Override
          public void onException(Throwable fault) {
            again(producer, message, String.valueOf(fault.getMessage()));
          }
        };
    try {
      producer.send(message, settled);
    } catch (Exception fault) {
      again(producer, message, String.valueOf(fault.getMessage()));
    }
  }

  /** In a thread of its own: the client's own threads call this, and they must not wait. */
  private static void again(DefaultMQProducer producer, Message message, String why) {
    Thread later =
        new Thread(
            () -> {
              try {
                Thread.sleep(PAUSE_MS);
              } catch (InterruptedException ended) {
                return;
              }
              send(producer, message);
            });
    System.err.println("again: " + why);
    later.setDaemon(true);
    later.start();
  }

  private static void drain(String names) throws Exception {
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-drain");
    consumer.setNamesrvAddr(names);
    consumer.setPollNameServerInterval(POLL_NAMES_MS);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.setConsumeThreadMin(THREADS);
    consumer.setConsumeThreadMax(THREADS);
    consumer.subscribe(TOPIC, "*");
    consumer.registerMessageListener(
        (MessageListenerConcurrently)
            (messages, context) -> {
              tell(messages);
              return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
    consumer.start();
  }

  private static void tell(List<MessageExt> messages) {
    StringBuilder lines = new StringBuilder();
    messages.forEach(each -> lines.append(each.getKeys()).append('\n'));
    try {
      OUT.write(lines.toString().getBytes(US_ASCII)); // one call, so lines of two threads do not mix
    } catch (IOException fault) {
      throw new IllegalStateException(fault);
    }
  }

  private RocketMq() {}
}
