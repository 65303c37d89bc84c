package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/internal/controller"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/operator/manifests"
	"slipway.dev/slipway/internal/operator/webhookcert"
	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/datadir"
)

// idOperatorFlag is the problem of a flag of the operator.
const idOperatorFlag = "operator-flag-invalid"

// withoutListener is the value of a flag with an address at which nothing listens.
const withoutListener = "0"

// operatorCommand is 'slipwayd operator'.
type operatorCommand struct {
	*program
	kubeconfig, namespace, apiURL string
	probes, metrics, webhook      string
	cacheDir, archive, logFormat  string
	executor                      string
}

// The values of --executor.
const (
	executorInProcess = "in-process"
	executorJob       = "job"
)

func newOperatorCommand(p *program) *cobra.Command {
	o := &operatorCommand{program: p}
	cmd := &cobra.Command{
		Use: "operator", Short: "Run the controllers in a Kubernetes cluster", Args: cobra.NoArgs,
		Long: `Runs the controllers of Slipway on the API of a Kubernetes cluster, until it gets
SIGTERM or SIGINT. Several processes can run: one of them has the Lease
slipway-controllers and changes clusters, and all respond to the webhook.

'slipway operator install' makes the definitions, the rights and a Deployment
that runs this command.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: the ServiceAccount of the Pod)")
	f.StringVar(&o.namespace, "namespace", manifests.Namespace, "`namespace` of the Lease, the certificate and the Service of the webhook")
	f.StringVar(&o.apiURL, "api-url", "", "`URL` of the API for people (default: the URL that the controllers use)")
	f.StringVar(&o.webhook, "webhook-listen", withoutListener, "`address` of the webhook, for example :9443; 0 for none")
	f.StringVar(&o.probes, "probe-listen", withoutListener, "`address` of /healthz and /readyz; 0 for none")
	f.StringVar(&o.metrics, "metrics-listen", withoutListener, "`address` of /metrics, with TLS; 0 for none")
	f.StringVar(&o.cacheDir, "cache-dir", "", "`directory` of bundles (default \"cache\" in the data directory)")
	f.StringVar(&o.archive, "archive-dir", withoutArchive, "`directory` of finished operations, or none to delete them")
	f.StringVar(&o.executor, "executor", executorInProcess, "the `executor` of operations that name none: in-process or job")
	f.StringVar(&o.logFormat, "log-format", "text", "`format` of the log: text or json")
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
	if o.executor != executorInProcess && o.executor != executorJob {
		return diag.Refuse(idOperatorFlag, fmt.Sprintf("--executor %q is not an executor", o.executor), "use in-process or job")
	}
	if o.archive != withoutArchive && !filepath.IsAbs(o.archive) {
		return diag.Refuse(idOperatorFlag, fmt.Sprintf("--archive-dir %q is not an absolute path", o.archive),
			"use a path such as /var/lib/slipwayd/archive, or none")
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
	log, err := newLog(o.Err, o.logFormat)
	if err != nil {
		return err
	}
	controlplane.RedirectLogs(log)
	client, err := o.loadClient()
	if err != nil {
		return err
	}
	settings, err := o.newSettings(ctx, client, log)
	if err != nil {
		return err
	}
	if files := openArchive(ctx, o.archive, "", log); files != nil {
		defer func() { err = errors.Join(err, files.Close()) }()
		settings.files = files
	}
	runControllers, err := newControllers(settings)
	if err != nil {
		return err
	}
	log.Info("the operator starts", "api", client.Host, "namespace", o.namespace)
	if err := runControllers(ctx, client); err != nil {
		return err
	}
	log.Info("the operator has stopped")
	return nil
}

// loadClient returns the configuration of the client of the API.
func (o *operatorCommand) loadClient() (*rest.Config, error) {
	const hint = "set --kubeconfig to the kubeconfig of the cluster whose Cluster objects the controllers read"
	if o.kubeconfig == "" {
		client, err := rest.InClusterConfig()
		if err != nil {
			return nil, diag.Refuse(idOperatorFlag, fmt.Sprintf("there is no ServiceAccount of a Pod: %v", err), hint)
		}
		return client, nil
	}
	client, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, diag.Refuse(idOperatorFlag, fmt.Sprintf("reading the kubeconfig: %v", err), hint)
	}
	return client, nil
}

// newSettings makes the directories and the parts of the process.
func (o *operatorCommand) newSettings(ctx context.Context, client *rest.Config, log *slog.Logger) (controllerSettings, error) {
	s, err := o.newDirectories(client, log)
	if err != nil {
		return s, err
	}
	s.process = &controller.Process{
		Namespace: o.namespace, ProbeAddress: o.probes, MetricsAddress: o.metrics,
		Jobs: &controller.JobSettings{Deployment: manifests.Name, Container: manifests.Container, IsDefault: o.executor == executorJob},
	}
	if o.webhook == withoutListener {
		return s, nil
	}
	return s, o.addWebhook(ctx, client, s.process, log)
}

// newDirectories makes the directories of a process on the API of a client.
func (o *operatorCommand) newDirectories(client *rest.Config, log *slog.Logger) (controllerSettings, error) {
	client.QPS = -1 // the API server limits its clients
	dir := func(name string) string { return filepath.Join(o.dataDir, name) }
	s := controllerSettings{
		backupDir: dir(datadir.SnapshotsDir), tempDir: dir("tmp"), cacheDir: cmp.Or(o.cacheDir, dir(datadir.CacheDir)),
		url: cmp.Or(o.apiURL, client.Host), log: log,
	}
	for _, path := range []string{s.backupDir, s.tempDir, s.cacheDir} {
		if err := os.MkdirAll(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return s, fmt.Errorf("making a directory: %w", err)
		}
	}
	return s, nil
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
	p.Webhook = &controller.Webhook{Host: host, Port: port, Certificate: certificate}
	p.Admission, err = newAdmission()
	return err
}
