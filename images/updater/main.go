// Apiserver-updater gives a separate Service the endpoints of the Service kubernetes,
// except API servers that do not respond. The Service provides a cluster IP of the user's
// choice for the API servers. Only the instance that holds a Lease works.
//
// The environment sets NAMESPACE and SERVICE, which name the target Service, and
// POD_NAME, which identifies the instance. KUBERNETES_SERVICE_HOST and
// KUBERNETES_SERVICE_PORT have the values of any pod, or name a nearer API server.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// version is set by the linker.
var version = "unknown"

// leaseName is the name of the Lease, in the Service's namespace.
const leaseName = "apiserver-updater"

// Another instance takes over at most leaseDuration after the leader's last renewal. The
// leader stops earlier, after renewDeadline.
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 7 * time.Second
	retryPeriod   = 2 * time.Second
)

func main() {
	if slices.Equal(os.Args[1:], []string{"version"}) {
		_, _ = os.Stdout.WriteString("apiserver-updater " + version + "\n")
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := runInCluster(ctx, os.Getenv, log); err != nil {
		log.Error("ending", "error", err)
		os.Exit(1)
	}
}

// runInCluster runs as a pod of the cluster until ctx is done.
func runInCluster(ctx context.Context, getenv func(string) string, log *slog.Logger) error {
	s := settings{namespace: getenv("NAMESPACE"), service: getenv("SERVICE"), identity: getenv("POD_NAME")}
	if s.namespace == "" || s.service == "" || s.identity == "" {
		return errors.New("NAMESPACE, SERVICE and POD_NAME must be set")
	}
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	cfg.UserAgent = "apiserver-updater/" + version
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	trust, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return fmt.Errorf("reading the CA of the cluster: %w", err)
	}
	s.ask = readyzProbe(trust)
	return run(ctx, client, s, log)
}

// settings has the target Service and the identity of this instance.
type settings struct {
	namespace, service, identity string
	// ask probes an API server at "host:port".
	ask func(ctx context.Context, server string) error
}

// run waits for the Lease and then follows the endpoints. It returns nil when ctx is
// done, and an error when the Lease is lost. The program then restarts without any state.
func run(ctx context.Context, client kubernetes.Interface, s settings, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	leading := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: leaseName,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: s.namespace, Name: leaseName},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: s.identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leading <- ctx },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing the election: %w", err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		elector.Run(ctx)
	}()
	select {
	case term := <-leading:
		log.Info("leading", "identity", s.identity)
		err = (&follower{client: client, settings: s, log: log}).followEndpoints(term)
	case <-stopped:
	}
	over := ctx.Err() != nil
	cancel()
	<-stopped
	if err == nil && !over {
		err = errors.New("the lease was lost")
	}
	return err
}
