import static java.nio.charset.StandardCharsets.US_ASCII;

import com.github.kagkarlsson.scheduler.Scheduler;
import com.github.kagkarlsson.scheduler.SchedulerClient;
import com.github.kagkarlsson.scheduler.SchedulerName;
import com.github.kagkarlsson.scheduler.task.SchedulableInstance;
import com.github.kagkarlsson.scheduler.task.helper.OneTimeTask;
import com.github.kagkarlsson.scheduler.task.helper.Tasks;
import com.zaxxer.hikari.HikariDataSource;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;

/**
 * db-scheduler for make bench-peers: both ends of it. PostgreSQL is started by db_scheduler_postgres.py.
 *
 * <pre>
 * java DbScheduler feed URL USER PASSWORD VALUE    reads lines "ID DUE_MS", exits 0 when the table has each of them
 * java DbScheduler drain URL USER PASSWORD         the scheduler: prints a line "ID" for each execution
 * </pre>
 */
public final class DbScheduler {
  private static final int BATCH = 500;
  private static final int THREADS = 20;
  private static final Duration POLLING = Duration.ofMillis(100);
  /** With these, what a killed scheduler had picked is given to another one after 8 s; by default after 30 minutes. */
  private static final Duration HEARTBEAT = Duration.ofSeconds(2);
  private static final int MISSED_HEARTBEATS = 4;
  private static final long PAUSE_MS = 100;

  /** As in the project's own script for PostgreSQL. */
  private static final String[] TABLE = {
    "CREATE TABLE IF NOT EXISTS scheduled_tasks (task_name TEXT NOT NULL, task_instance TEXT NOT NULL,"
        + " task_data BYTEA, execution_time TIMESTAMP WITH TIME ZONE NOT NULL, picked BOOLEAN NOT NULL,"
        + " picked_by TEXT, last_success TIMESTAMP WITH TIME ZONE, last_failure TIMESTAMP WITH TIME ZONE,"
        + " consecutive_failures INT, last_heartbeat TIMESTAMP WITH TIME ZONE, version BIGINT NOT NULL,"
        + " priority SMALLINT, PRIMARY KEY (task_name, task_instance))",
    "CREATE INDEX IF NOT EXISTS execution_time_idx ON scheduled_tasks (execution_time)",
    "CREATE INDEX IF NOT EXISTS last_heartbeat_idx ON scheduled_tasks (last_heartbeat)",
    "CREATE INDEX IF NOT EXISTS priority_execution_time_idx"
        + " ON scheduled_tasks (priority DESC, execution_time ASC)",
  };

  private static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);

  private static final OneTimeTask<String> DUE =
      Tasks.oneTime("due", String.class).execute((instance, context) -> tell(instance.getId()));

  public static void main(String[] arguments) throws Exception {
    HikariDataSource source = new HikariDataSource();
    source.setJdbcUrl(arguments[1] + "?reWriteBatchedInserts=true");
    source.setUsername(arguments[2]);
    source.setPassword(arguments[3]);
    source.setMaximumPoolSize(THREADS + 4);
    source.setMinimumIdle(2);
    try (Connection connection = source.getConnection();
        Statement statement = connection.createStatement()) {
      // The other end may make the table at this moment.
      statement.execute("SELECT pg_advisory_lock(1)");
      for (String each : TABLE) {
        statement.execute(each);
      }
      statement.execute("SELECT pg_advisory_unlock(1)");
    }
    if (arguments[0].equals("feed")) {
      feed(source, arguments[4]);
      source.close();
    } else {
      drain(source);
    }
  }

  private static void feed(HikariDataSource source, String value) throws Exception {
    SchedulerClient client = SchedulerClient.Builder.create(source, DUE).build();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, US_ASCII));
    List<SchedulableInstance<?>> batch = new ArrayList<>();
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] parts = line.split(" ");
      Instant due = Instant.ofEpochMilli(Long.parseLong(parts[1]));
      batch.add(SchedulableInstance.of(DUE.instance(parts[0], value), due));
      if (batch.size() == BATCH || !lines.ready()) {
        schedule(client, batch);
        batch.clear();
      }
    }
  }

  /** A batch is one transaction, so it is in the table whole or not at all; after a doubt each is looked at by itself. */
  private static void schedule(SchedulerClient client, List<SchedulableInstance<?>> batch) throws Exception {
    try {
      client.scheduleBatch(batch);
    } catch (RuntimeException fault) {
      System.err.println("again: " + fault);
      for (SchedulableInstance<?> each : batch) {
        scheduleAlone(client, each);
      }
    }
  }

  private static void scheduleAlone(SchedulerClient client, SchedulableInstance<?> each) throws Exception {
    while (true) {
      try {
        client.scheduleIfNotExists(each);
        return;
      } catch (RuntimeException fault) {
        Thread.sleep(PAUSE_MS);
      }
    }
  }

  private static void drain(HikariDataSource source) {
    Scheduler scheduler =
        Scheduler.create(source, DUE)
            .schedulerName(new SchedulerName.Fixed("bench-" + ProcessHandle.current().pid()))
            .threads(THREADS)
            .pollingInterval(POLLING)
            .pollUsingLockAndFetch(1.0, 4.0)
            .heartbeatInterval(HEARTBEAT)
            .missedHeartbeatsLimit(MISSED_HEARTBEATS)
            .registerShutdownHook()
            .build();
    scheduler.start();
  }

  private static void tell(String id) {
    try {
      OUT.write((id + "\n").getBytes(US_ASCII)); // one call, so lines of two threads do not mix
    } catch (IOException fault) {
      throw new IllegalStateException(fault);
    }
  }

  private DbScheduler() {}
}
