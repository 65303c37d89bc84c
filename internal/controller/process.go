package controller

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	webhookadmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/admission"
	"slipway.dev/slipway/internal/hostclaims"
)

// A Process has what controllers need outside of the management server. Namespace is required.
type Process struct {
	// Namespace has the Jobs and the certificate of the webhook.
	Namespace string
	// ProbeAddress is the address of /healthz and /readyz, and MetricsAddress the address of /metrics, over TLS and for
	// clients with the right to read the path. "0": none.
	ProbeAddress, MetricsAddress string
	// Jobs run operations whose executor is Job, and with IsDefault operations without an executor. nil: none.
	Jobs *JobSettings
	// Webhook serves Admission at an address. nil: none.
	Webhook   *Webhook
	Admission *admission.Checker
}

// JobSettings name the Deployment of the controllers, whose image and volumes Jobs have.
type JobSettings struct {
	Deployment, Container string
	IsDefault             bool
}

// A Webhook has the address and the path of the webhook, and its certificate.
type Webhook struct {
	Host        string
	Port        int
	Path        string
	Certificate Certificate
}

// A Certificate is the certificate of a webhook, which Run renews until ctx ends. Ready returns an error while there is
// none.
type Certificate interface {
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Ready() error
	Run(ctx context.Context) error
}

// setOptions configures a manager for the process.
func (p *Process) setOptions(o *manager.Options) {
	o.HealthProbeBindAddress = p.ProbeAddress
	o.Metrics = metricsserver.Options{
		BindAddress: p.MetricsAddress, SecureServing: true, FilterProvider: filters.WithAuthenticationAndAuthorization,
	}
	if w := p.Webhook; w != nil {
		o.WebhookServer = webhook.NewServer(webhook.Options{Host: w.Host, Port: w.Port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = w.Certificate.GetCertificate
		}}})
	}
}

// addTo adds the parts of the process to a manager.
func (p *Process) addTo(ctx context.Context, m manager.Manager, log *slog.Logger) error {
	if err := m.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if p.Webhook == nil {
		return m.AddReadyzCheck("ping", healthz.Ping)
	}
	certificate := p.Webhook.Certificate
	if err := m.AddReadyzCheck("webhook", func(*http.Request) error { return certificate.Ready() }); err != nil {
		return err
	}
	if err := m.Add(manager.RunnableFunc(certificate.Run)); err != nil {
		return err
	}
	p.Admission.ListClusters = newClusterLister(m.GetAPIReader())
	if err := watchClaims(ctx, m.GetCache(), p.Admission.Claims, log); err != nil {
		return err
	}
	m.GetWebhookServer().Register(p.Webhook.Path, &webhook.Admission{Handler: webhookadmission.HandlerFunc(p.review)})
	return nil
}

// review responds to a request of the webhook.
func (p *Process) review(ctx context.Context, r webhookadmission.Request) webhookadmission.Response {
	return webhookadmission.Response{AdmissionResponse: *p.Admission.Review(ctx, &r.AdmissionRequest)}
}

// newClusterLister returns a function that reads the Clusters of a namespace from the API.
func newClusterLister(live client.Reader) func(context.Context, string) ([]v1alpha1.Cluster, error) {
	return func(ctx context.Context, namespace string) ([]v1alpha1.Cluster, error) {
		var found v1alpha1.ClusterList
		err := live.List(ctx, &found, client.InNamespace(namespace))
		return found.Items, err
	}
}

// claimsTime limits the wait for the hosts of all Clusters.
const claimsTime = 5 * time.Minute

// watchClaims keeps the hosts of all Clusters in an index, also while the controllers run in another process.
func watchClaims(ctx context.Context, from cache.Cache, claims *hostclaims.Index, log *slog.Logger) error {
	informer, err := from.GetInformer(ctx, &v1alpha1.Cluster{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching Clusters: %w", err)
	}
	set := func(object any) {
		if c, ok := object.(*v1alpha1.Cluster); ok {
			claims.Set(hostclaims.New(c))
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: set, UpdateFunc: func(_, object any) { set(object) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if c, err := meta.Accessor(object); err == nil {
				claims.Remove(c.GetUID())
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching Clusters: %w", err)
	}
	go func() { // ends with ctx
		limited, cancel := context.WithTimeout(ctx, claimsTime)
		defer cancel()
		if toolscache.WaitForCacheSync(limited.Done(), registration.HasSynced) {
			claims.SetComplete()
		} else if ctx.Err() == nil {
			log.Warn("the hosts of all Clusters are not known; the controllers compare them")
		}
	}()
	return nil
}
