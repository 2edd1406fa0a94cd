// BullMQ for make bench-peers: both ends of it. Redis is started by bullmq_redis.py.
//
//   node peer.mjs feed PORT VALUE    reads lines "ID DUE_MS", exits 0 when Redis has each of them
//   node peer.mjs drain PORT         the worker: prints a line "ID" for each job that it is given

import { createInterface } from "node:readline";
import { Queue, Worker } from "bullmq";

const NAME = "due";
const BULK = 500;
const IN_FLIGHT = 4;
const MOST_LINES = 10_000;
const CONCURRENCY = 100;
const PAUSE_MS = 100;

const [role, port, value] = process.argv.slice(2);
// null: a command waits for Redis to come back, however long it takes.
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null, retryStrategy: () => PAUSE_MS };
const tell = (error) => process.stderr.write(`${error.message}\n`);

function jobOf(line) {
  const [id, due] = line.split(" ");
  const now = Date.now();
  const opts = { jobId: id, timestamp: now, delay: Math.max(Number(due) - now, 0), removeOnComplete: true };
  return { name: NAME, data: value, opts };
}

async function add(queue, lines) {
  for (;;) {
    try {
      await queue.addBulk(lines.map(jobOf)); // an id that is there already is not added again
      return;
    } catch (error) {
      tell(error);
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
}

async function feed() {
  const queue = new Queue(NAME, { connection });
  queue.on("error", tell);
  const input = createInterface({ input: process.stdin });
  const lines = [];
  let inFlight = 0;
  let ended = false;
  await new Promise((resolve) => {
    const pump = () => {
      while (lines.length && inFlight < IN_FLIGHT) {
        inFlight += 1;
        add(queue, lines.splice(0, BULK)).then(() => {
          inFlight -= 1;
          if (lines.length < MOST_LINES) input.resume();
          pump();
        });
      }
      if (ended && !lines.length && !inFlight) resolve();
    };
    input.on("line", (line) => {
      lines.push(line);
      if (lines.length > MOST_LINES && !ended) input.pause();
      if (lines.length === 1) setImmediate(pump); // the other lines of the same read go with it
    });
    input.on("close", () => {
      ended = true;
      pump();
    });
  });
  await queue.close();
}

function drain() {
  const options = { connection, concurrency: CONCURRENCY, removeOnComplete: { count: 0 } };
  const worker = new Worker(NAME, async (job) => void process.stdout.write(`${job.id}\n`), options);
  worker.on("error", tell);
  process.on("SIGTERM", () => worker.close(true).then(() => process.exit(0)));
}

if (role === "feed") await feed();
else drain();
