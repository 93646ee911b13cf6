// A member of a group that writes each message it is handed as one JSON line; no check.
//
//	ledger NAMESRV GROUP TOPIC concurrently|orderly|broadcasting LAST|FIRST LEDGER
//
// Concurrently, it fails the first time, and writes nothing, where a body ends with `!`; where one
// ends with `#`, its listener never returns. It has the client's own defaults but for the start
// policy, and leaves its group on SIGTERM.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type delivered struct {
	Topic  string `json:"topic"`
	Queue  int    `json:"queue"`
	Offset int64  `json:"offset"`
	Id     string `json:"id"`
	Body   string `json:"body"`
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	args := os.Args[1:]
	rlog.SetLogLevel("warn")
	file, err := os.OpenFile(args[5], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(err)
	ledger, alone := json.NewEncoder(file), sync.Mutex{}
	policy := consumer.ConsumeFromFirstOffset
	if args[4] == "LAST" {
		policy = consumer.ConsumeFromLastOffset
	}
	model := consumer.Clustering
	if args[3] == "broadcasting" {
		model = consumer.BroadCasting
	}
	member, err := rocketmq.NewPushConsumer(
		consumer.WithConsumerModel(model),
		consumer.WithGroupName(args[1]),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{args[0]})),
		consumer.WithConsumeFromWhere(policy),
		consumer.WithConsumerOrder(args[3] == "orderly"),
	)
	must(err)
	must(member.Subscribe(args[2], consumer.MessageSelector{}, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if first := messages[0]; args[3] == "concurrently" && first.ReconsumeTimes == 0 && strings.HasSuffix(string(first.Body), "!") {
			return consumer.ConsumeRetryLater, nil
		}
		if strings.HasSuffix(string(messages[0].Body), "#") {
			select {}
		}
		alone.Lock()
		defer alone.Unlock()
		for _, one := range messages {
			must(ledger.Encode(delivered{one.Topic, one.Queue.QueueId, one.QueueOffset, one.MsgId, string(one.Body)}))
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(member.Start())
	fmt.Println("ready")
	leave := make(chan os.Signal, 1)
	signal.Notify(leave, syscall.SIGTERM)
	<-leave
	must(member.Shutdown())
}
