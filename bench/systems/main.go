// A candidate of a leader election, by client-go or by etcd. bench/README.md explains the comparison.
//
//	systems client-go IDENTITY KUBECONFIG LEASE
//	systems etcd IDENTITY ENDPOINT ELECTION
//
// It prints one JSON object a line: when it stands by, when it leads, and when it ends. SIGTERM gives the leadership
// back, as the library's documentation tells.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The defaults of Kubernetes' own components. Every system of the comparison uses this lease.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

var (
	writes, reads atomic.Int64
	output        sync.Mutex
)

// say prints an event with the time of day, which all processes of a machine share.
func say(event string) {
	output.Lock()
	defer output.Unlock()
	line, _ := json.Marshal(map[string]any{
		"event": event, "at_ns": time.Now().UnixNano(), "writes": writes.Load(), "reads": reads.Load(),
	})
	fmt.Println(string(line))
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: systems client-go|etcd IDENTITY KUBECONFIG|ENDPOINT NAME")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	run := map[string]func(context.Context, string, string, string) error{"client-go": clientGo, "etcd": etcd}[os.Args[1]]
	if run == nil {
		fmt.Fprintln(os.Stderr, "unknown system", os.Args[1])
		os.Exit(64)
	}
	go counts(ctx)
	if err := run(ctx, os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say("ended")
}

// counts prints the numbers of requests every second.
func counts(ctx context.Context) {
	for range time.Tick(time.Second) {
		if ctx.Err() != nil {
			return
		}
		say("counts")
	}
}

// counted counts the requests to the API server.
type counted struct{ next http.RoundTripper }

func (c counted) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet {
		reads.Add(1)
	} else {
		writes.Add(1)
	}
	return c.next.RoundTrip(request)
}

func clientGo(ctx context.Context, identity, kubeconfig, name string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: "default"},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, Name: name, ReleaseOnCancel: true,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				say("leads")
				<-ctx.Done()
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				if leader != identity {
					say("stands by")
				}
			},
		},
	})
	return nil
}

func etcd(ctx context.Context, identity, endpoint, name string) error {
	count := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if method == "/etcdserverpb.KV/Range" {
			reads.Add(1)
		} else {
			writes.Add(1)
		}
		return invoke(ctx, method, request, reply, conn, options...)
	}
	stream := func(ctx context.Context, about *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		opened, err := open(ctx, about, conn, method, options...)
		return keepAlives{opened}, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(count), grpc.WithChainStreamInterceptor(stream)},
	})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(leaseDuration/time.Second)))
	if err != nil {
		return err
	}
	election := concurrency.NewElection(session, "/"+name)
	go standsBy(ctx, client, "/"+name+"/")
	if err := election.Campaign(ctx, identity); err != nil {
		return err
	}
	say("leads")
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := election.Resign(end); err != nil {
		return err
	}
	return session.Close()
}

// standsBy waits until this candidate is in the queue behind the leader.
func standsBy(ctx context.Context, client *clientv3.Client, queue string) {
	for ctx.Err() == nil {
		found, err := client.Get(ctx, queue, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && found.Count >= 2 {
			say("stands by")
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// keepAlives counts what a stream sends: etcd renews a lease by it, without a write to its log.
type keepAlives struct{ grpc.ClientStream }

func (k keepAlives) SendMsg(message any) error {
	if _, is := message.(*pb.LeaseKeepAliveRequest); is {
		reads.Add(1)
	}
	return k.ClientStream.SendMsg(message)
}
