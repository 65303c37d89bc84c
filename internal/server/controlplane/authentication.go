package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/safefile"
)

const (
	// maxAuthentication limits the bytes of the file with the issuers of tokens.
	maxAuthentication = 1 << 20
	// authenticationPeriod is the time between two looks at that file.
	authenticationPeriod = 2 * time.Second
	// authenticationAPI and authenticationKind are the version and the kind of that file.
	authenticationAPI  = "apiserver.config.k8s.io/v1"
	authenticationKind = "AuthenticationConfiguration"
)

// anonymousPaths are the only paths that serve requests without credentials.
var anonymousPaths = []string{"/livez", "/readyz", "/version"}

// setAuthentication sets the options of authentication: client certificates of the own CA,
// tokens of service accounts, and tokens of the issuers that the user configured.
func (s *Server) setAuthentication(ctx context.Context, o *options.Options) error {
	a := o.Authentication
	a.ClientCert.ClientCA = s.config.Certificates.CAFile()
	a.ServiceAccounts.Issuers = []string{"https://slipwayd/" + s.config.Dir.ServerID()}
	a.ServiceAccounts.KeyFiles = s.config.Keys.ServiceAccountPublicKeys()
	a.ServiceAccounts.OptionalTokenGetter = newTokenGetter
	o.ServiceAccountSigningKeyFile = s.config.Keys.ServiceAccountKey()
	a.BootstrapToken, a.TokenFile, a.WebHook, a.OIDC = nil, nil, nil, nil
	file := authenticationFile{source: s.config.AuthenticationConfig, target: s.config.Dir.Path("tmp", "authentication.yaml")}
	if _, err := file.update(); err != nil {
		return err
	}
	a.AuthenticationConfigFile = file.target
	if _, err := a.ToAuthenticationConfig(); err != nil {
		return diag.Refuse(idAuthentication, fmt.Sprintf("%s: %v", file.source, err), "correct that file and start the server again")
	}
	if file.source != "" {
		s.background.Go(func() { file.follow(ctx, s) })
	}
	return nil
}

// An authenticationFile is the configuration that the API server reads and reloads: the user's
// file, with the rule for anonymous requests.
type authenticationFile struct {
	source, target string
	last           [sha256.Size]byte // of the source
}

// update writes the target if the source has changed, and reports whether it has.
func (f *authenticationFile) update() (bool, error) {
	config := apiserverv1.AuthenticationConfiguration{}
	var text []byte
	if f.source != "" {
		var err error
		if text, err = safefile.ReadFile(f.source, maxAuthentication); err != nil {
			return false, diag.Refuse(idAuthentication, fmt.Sprintf("cannot read the authentication configuration: %v", err),
				"correct --authentication-config")
		}
		if sum := sha256.Sum256(text); sum == f.last {
			return false, nil
		}
		if err := yaml.UnmarshalStrict(bytes.TrimSpace(text), &config); err != nil {
			return false, diag.Refuse(idAuthentication, fmt.Sprintf("%s: %v", f.source, err),
				"write an AuthenticationConfiguration of apiserver.config.k8s.io/v1")
		}
		if config.Kind != authenticationKind {
			return false, diag.Refuse(idAuthentication, fmt.Sprintf("%s: kind %q is not %s", f.source, config.Kind, authenticationKind),
				"write an AuthenticationConfiguration of apiserver.config.k8s.io/v1")
		}
		if config.Anonymous != nil {
			return false, diag.Refuse(idAuthentication, f.source+": anonymous: this field belongs to the server",
				"remove the field; without credentials, only /livez, /readyz and /version can be read")
		}
	}
	config.APIVersion, config.Kind = authenticationAPI, authenticationKind
	config.Anonymous = &apiserverv1.AnonymousAuthConfig{Enabled: true}
	for _, path := range anonymousPaths {
		config.Anonymous.Conditions = append(config.Anonymous.Conditions, apiserverv1.AnonymousAuthCondition{Path: path})
	}
	out, err := yaml.Marshal(config)
	if err != nil {
		return false, err
	}
	if err := safefile.WriteFile(f.target, out, 0o600); err != nil {
		return false, fmt.Errorf("writing the authentication configuration: %w", err)
	}
	f.last = sha256.Sum256(text)
	return true, nil
}

// follow updates the target when the source changes, until ctx ends. A file with a mistake is
// logged once, and the previous configuration continues to apply.
func (f *authenticationFile) follow(ctx context.Context, s *Server) {
	tick := time.NewTicker(authenticationPeriod)
	defer tick.Stop()
	var known string
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed, err := f.update()
		switch {
		case err != nil && err.Error() != known:
			known = err.Error()
			s.config.Log.Error("the authentication configuration is not used", "error", err)
		case changed:
			known = ""
			s.config.Log.Info("the authentication configuration has changed", "file", f.source)
		}
	}
}

// A tokenGetter looks up the objects that a token of a service account is bound to. This
// server has no pods and nodes.
type tokenGetter struct {
	secrets  corelisters.SecretLister
	accounts corelisters.ServiceAccountLister
	// client finds objects that are newer than the informers; nil without such a client.
	client kubernetes.Interface
}

// newTokenGetter returns a getter on the informers of the API server, and on their client. That
// client has the token of the process, so that its requests need no getter.
func newTokenGetter(factory informers.SharedInformerFactory) serviceaccount.ServiceAccountTokenGetter {
	g := tokenGetter{}
	// The factory tells its client only to the function that makes an informer.
	factory.InformerFor(&corev1.ServiceAccount{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		g.client = client
		return coreinformers.NewServiceAccountInformer(client, corev1.NamespaceAll, resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
	g.secrets, g.accounts = factory.Core().V1().Secrets().Lister(), factory.Core().V1().ServiceAccounts().Lister()
	return g
}

// GetServiceAccount returns a service account. A new one can have a token before the informer
// has it.
func (g tokenGetter) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	account, err := g.accounts.ServiceAccounts(namespace).Get(name)
	if apierrors.IsNotFound(err) && g.client != nil {
		return g.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return account, err
}

// GetSecret returns a Secret.
func (g tokenGetter) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret, err := g.secrets.Secrets(namespace).Get(name)
	if apierrors.IsNotFound(err) && g.client != nil {
		return g.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return secret, err
}

// GetPod returns an error: the server has no pods.
func (tokenGetter) GetPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	return nil, notServed("", "pods", name)
}

// GetNode returns an error: the server has no nodes.
func (tokenGetter) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return nil, notServed("", "nodes", name)
}

// GetValidatingWebhookConfiguration returns an error: tokens are not bound to webhooks.
func (tokenGetter) GetValidatingWebhookConfiguration(
	_ context.Context, name string,
) (*admissionv1.ValidatingWebhookConfiguration, error) {
	return nil, notServed(admissionv1.GroupName, "validatingwebhookconfigurations", name)
}

// GetMutatingWebhookConfiguration returns an error: tokens are not bound to webhooks.
func (tokenGetter) GetMutatingWebhookConfiguration(
	_ context.Context, name string,
) (*admissionv1.MutatingWebhookConfiguration, error) {
	return nil, notServed(admissionv1.GroupName, "mutatingwebhookconfigurations", name)
}

func notServed(group, resource, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: resource}, name)
}
