// NATS for make bench-peers: the server, and both ends of it.
//
//	peer version
//	peer server PORT FOLDER          JetStream with files; prints "ready"
//	peer feed PORT VALUE             reads lines "ID DUE_MS", exits 0 when the server has confirmed each of them
//	peer drain PORT                  prints a line "ID" for each message that is released
//
// A message waits on a subject of its own, because a subject holds one schedule.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	streamName = "schedules"
	waiting    = "waiting."
	released   = "released"
	inFlight   = 4096
	patience   = 5 * time.Second
	pause      = 100 * time.Millisecond
	// The client's own WithScheduleAt drops the milliseconds, and such a message would be early.
	milliseconds = "2006-01-02T15:04:05.000Z"
)

func main() {
	arguments := os.Args[1:]
	var err error
	switch arguments[0] {
	case "version":
		fmt.Println(server.VERSION)
	case "server":
		err = serve(arguments[1], arguments[2])
	case "feed":
		err = feed(arguments[1], arguments[2])
	case "drain":
		err = drain(arguments[1])
	default:
		err = fmt.Errorf("unknown: %s", arguments[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(port, folder string) error {
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	running, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: number, JetStream: true, StoreDir: folder, NoSigs: true})
	if err != nil {
		return err
	}
	running.SetLoggerV2(logger{}, false, false, false)
	go running.Start()
	if !running.ReadyForConnections(2 * time.Minute) {
		return fmt.Errorf("the server takes no connections")
	}
	fmt.Println("ready")
	wait()
	running.Shutdown()
	return nil
}

func open(port string) (jetstream.JetStream, error) {
	connection, err := nats.Connect("127.0.0.1:"+port, nats.MaxReconnects(-1), nats.ReconnectWait(pause), nats.ReconnectBufSize(64<<20))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(inFlight), jetstream.WithPublishAsyncTimeout(patience))
	if err != nil {
		return nil, err
	}
	_, err = js.CreateOrUpdateStream(context.Background(), jetstream.StreamConfig{
		Name:              streamName,
		Subjects:          []string{waiting + ">", released},
		Storage:           jetstream.FileStorage,
		AllowMsgSchedules: true,
	})
	return js, err
}

type sent struct {
	message *nats.Msg
	future  jetstream.PubAckFuture
}

func feed(port, value string) error {
	js, err := open(port)
	if err != nil {
		return err
	}
	outgoing, done := make(chan sent, inFlight), make(chan struct{})
	go func() {
		defer close(done)
		for each := range outgoing {
			settle(js, each)
		}
	}()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		id, due, found := strings.Cut(lines.Text(), " ")
		dueMs, err := strconv.ParseInt(due, 10, 64)
		if !found || err != nil {
			return fmt.Errorf("no line ID DUE_MS: %q", lines.Text())
		}
		message := nats.NewMsg(waiting + id)
		message.Header.Set("Nats-Schedule", "@at "+time.UnixMilli(dueMs).UTC().Format(milliseconds))
		message.Header.Set("Nats-Schedule-Target", released)
		message.Header.Set("Bench-Id", id)
		message.Data = []byte(value)
		future, err := js.PublishMsgAsync(message)
		if err != nil {
			future = nil
		}
		outgoing <- sent{message, future}
	}
	close(outgoing)
	<-done
	return lines.Err()
}

// settle waits for the confirmation of a message, and sends it again until there is one.
func settle(js jetstream.JetStream, each sent) {
	if each.future != nil {
		select {
		case <-each.future.Ok():
			return
		case <-each.future.Err():
		}
	}
	for {
		within, cancel := context.WithTimeout(context.Background(), patience)
		// A copy: the client writes its own reply subject into what it has sent.
		again := &nats.Msg{Subject: each.message.Subject, Header: each.message.Header, Data: each.message.Data}
		_, err := js.PublishMsg(within, again)
		cancel()
		if err == nil {
			return
		}
		fmt.Fprintln(os.Stderr, "again:", err)
		time.Sleep(pause)
	}
}

func drain(port string) error {
	js, err := open(port)
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(context.Background(), streamName, jetstream.ConsumerConfig{
		Durable:       "bench",
		FilterSubject: released,
		AckPolicy:     jetstream.AckExplicitPolicy,
		MaxAckPending: 10_000,
	})
	if err != nil {
		return err
	}
	consuming, err := consumer.Consume(func(message jetstream.Msg) {
		os.Stdout.WriteString(message.Headers().Get("Bench-Id") + "\n")
		if err := message.Ack(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	if err != nil {
		return err
	}
	wait()
	consuming.Stop()
	return nil
}

func wait() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
}

// logger writes warnings and errors of the server.
type logger struct{}

func (logger) Noticef(string, ...any)            {}
func (logger) Debugf(string, ...any)             {}
func (logger) Tracef(string, ...any)             {}
func (logger) Warnf(format string, more ...any)  { fmt.Fprintf(os.Stderr, format+"\n", more...) }
func (logger) Errorf(format string, more ...any) { fmt.Fprintf(os.Stderr, format+"\n", more...) }
func (logger) Fatalf(format string, more ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", more...)
	os.Exit(1)
}
