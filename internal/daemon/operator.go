package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/internal/controller"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/operator/manifests"
	"slipway.dev/slipway/internal/operator/webhookcert"
)

// idOperatorFlag is the problem of a flag of the operator.
const idOperatorFlag = "operator-flag-invalid"

// withoutListener is the value of a flag with an address at which nothing listens.
const withoutListener = "0"

// operatorCommand is 'slipwayd operator'.
type operatorCommand struct {
	worker
	namespace, executor      string
	probes, metrics, webhook string
	maxCache                 uint32 // GiB
}

// operatorCache is the default limit of the bundles of a Pod in GiB. They come from registries, and are fetched again.
const operatorCache = 20

func newOperatorCommand(p *program) *cobra.Command {
	o := &operatorCommand{worker: worker{program: p}}
	cmd := &cobra.Command{
		Use: "operator", Short: "Run the controllers in a Kubernetes cluster", Args: cobra.NoArgs,
		Long: `Runs the controllers of Slipway on the API of a Kubernetes cluster, until it gets
SIGTERM or SIGINT. Several processes can run: they share the clusters, and all respond to the
webhook. Each has a Lease. If a process ends, the others take its clusters.

'slipway operator install' makes the definitions, the rights and a Deployment
that runs this command.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.namespace, "namespace", manifests.Namespace, "`namespace` of the Leases, the certificate and the Service of the webhook")
	f.StringVar(&o.webhook, "webhook-listen", withoutListener, "`address` of the webhook, for example :9443; 0 for none")
	f.StringVar(&o.probes, "probe-listen", withoutListener, "`address` of /healthz and /readyz; 0 for none")
	f.StringVar(&o.metrics, "metrics-listen", withoutListener, "`address` of /metrics, with TLS; 0 for none")
	f.StringVar(&o.executor, "executor", manifests.ExecutorInProcess, "the `executor` of operations that name none: in-process or job")
	o.addFlags(cmd)
	addCacheLimitFlag(cmd, &o.maxCache, operatorCache)
	return cmd
}

// check refuses flags that are not valid.
func (o *operatorCommand) check() error {
	for _, address := range []struct{ flag, value string }{
		{"--webhook-listen", o.webhook}, {"--probe-listen", o.probes}, {"--metrics-listen", o.metrics},
	} {
		if address.value == withoutListener {
			continue
		}
		if _, _, err := splitListen(address.value); err != nil {
			return diag.Refuse(idOperatorFlag, fmt.Sprintf("%s %q is not an address: %v", address.flag, address.value, err),
				"use :PORT or HOST:PORT, for example :9443, or 0")
		}
	}
	if o.executor != manifests.ExecutorInProcess && o.executor != manifests.ExecutorJob {
		return diag.Refuse(idOperatorFlag, fmt.Sprintf("--executor %q is not an executor", o.executor), "use in-process or job")
	}
	return nil
}

// splitListen returns the host and the port of an address to listen at.
func splitListen(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not a port", text)
	}
	return host, int(number), nil
}

// run runs the controllers until ctx ends.
func (o *operatorCommand) run(ctx context.Context) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	client, settings, closeArchive, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeArchive()) }()
	settings.cacheLimit = int64(o.maxCache) << 30
	if settings.sharing, err = newSharing(o.namespace); err != nil {
		return err
	}
	settings.process = &controller.Process{
		Namespace: o.namespace, ProbeAddress: o.probes, MetricsAddress: o.metrics,
		Jobs: &controller.JobSettings{
			Deployment: manifests.Name, Container: manifests.Container, IsDefault: o.executor == manifests.ExecutorJob,
		},
	}
	if o.webhook != withoutListener {
		if err := o.addWebhook(ctx, client, settings.process, settings.log); err != nil {
			return err
		}
	}
	runControllers, err := newControllers(settings)
	if err != nil {
		return err
	}
	settings.log.Info("the operator starts", "api", client.Host, "namespace", o.namespace)
	if err := runControllers(ctx, client); err != nil {
		return err
	}
	settings.log.Info("the operator has stopped")
	return nil
}

// addWebhook adds the webhook and its certificate to a process.
func (o *operatorCommand) addWebhook(ctx context.Context, client *rest.Config, p *controller.Process, log *slog.Logger) error {
	host, port, err := splitListen(o.webhook)
	if err != nil {
		return err
	}
	api, err := kubernetes.NewForConfig(client)
	if err != nil {
		return err
	}
	certificate := webhookcert.New(webhookcert.Config{
		Client: api, Namespace: o.namespace, Secret: manifests.WebhookName, Service: manifests.WebhookName,
		Configuration: manifests.WebhookName, Now: time.Now, Log: log,
	})
	if err := certificate.Ensure(ctx); err != nil {
		log.Warn("the webhook has no certificate yet; another attempt follows", "error", err)
	}
	p.Webhook = &controller.Webhook{Host: host, Port: port, Path: manifests.WebhookPath, Certificate: certificate}
	p.Admission, err = newAdmission()
	return err
}
