// Package webhookcert keeps the certificate of the operator's webhook. A Secret has the CA and the certificate, so that
// all replicas serve the same one, and the configuration of the webhook has the CA. The package renews both.
package webhookcert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"slipway.dev/slipway/internal/pki"
)

// Keys of the Secret.
const (
	keyCA         = "ca.crt" // the CA, and earlier ones that have not expired
	keyCAKey      = "ca.key"
	keyServing    = corev1.TLSCertKey
	keyServingKey = corev1.TLSPrivateKeyKey
)

const (
	caLifetime      = 10 * 365 * 24 * time.Hour
	servingLifetime = 90 * 24 * time.Hour
	// backdate lets a certificate begin in the past, for API servers whose clocks are slow.
	backdate = 5 * time.Minute
	// interval is the time between two checks.
	interval = time.Minute
	// requestTime limits the requests of one check.
	requestTime = 30 * time.Second
)

// A Config configures a Keeper. All fields are required.
type Config struct {
	Client kubernetes.Interface
	// Namespace has the Secret and the Service of the webhook.
	Namespace, Secret, Service string
	// Configuration is the name of the ValidatingWebhookConfiguration.
	Configuration string
	Now           func() time.Time
	Log           *slog.Logger
}

// A Keeper keeps the certificate. Make it with New.
type Keeper struct {
	Config

	mu      sync.RWMutex
	serving *tls.Certificate
}

// New returns a keeper without a certificate. Ensure and Run read or make it.
func New(c Config) *Keeper { return &Keeper{Config: c} }

// GetCertificate returns the certificate for a connection. See tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.serving == nil {
		return nil, errors.New("the webhook has no certificate yet")
	}
	return k.serving, nil
}

// Ready returns an error while there is no certificate.
func (k *Keeper) Ready() error {
	_, err := k.GetCertificate(nil)
	return err
}

// Run renews the certificate, and uses the certificate that another replica has renewed, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := k.Ensure(ctx); err != nil && ctx.Err() == nil {
			k.Log.Warn("the certificate of the webhook was not checked; the next check follows", "next", interval, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Ensure makes or renews the certificate if that is due, and writes the CA into the configuration of the webhook.
func (k *Keeper) Ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	secret, err := k.ensureSecret(ctx)
	if err != nil {
		return err
	}
	if err := k.use(secret); err != nil {
		return err
	}
	return k.ensureBundle(ctx, secret.Data[keyCA])
}

// use serves the certificate of a Secret.
func (k *Keeper) use(secret *corev1.Secret) error {
	pair, err := tls.X509KeyPair(secret.Data[keyServing], secret.Data[keyServingKey])
	if err != nil {
		return fmt.Errorf("reading the certificate in Secret %s/%s: %w", k.Namespace, k.Secret, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.serving = &pair
	return nil
}

// ensureSecret returns the Secret with a valid certificate. Several replicas can do this at the same time: one of them
// writes, and the others read its result.
func (k *Keeper) ensureSecret(ctx context.Context) (*corev1.Secret, error) {
	secrets := k.Client.CoreV1().Secrets(k.Namespace)
	for {
		secret, err := secrets.Get(ctx, k.Secret, metav1.GetOptions{})
		isNew := apierrors.IsNotFound(err)
		if isNew {
			secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: k.Secret, Namespace: k.Namespace}, Type: corev1.SecretTypeTLS}
		} else if err != nil {
			return nil, fmt.Errorf("reading Secret %s/%s: %w", k.Namespace, k.Secret, err)
		}
		changed, err := k.renew(secret)
		if err != nil || !changed {
			return secret, err
		}
		var saved *corev1.Secret
		if isNew {
			saved, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
		} else {
			saved, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		}
		if err == nil {
			k.Log.Info("the certificate of the webhook was renewed", "secret", k.Namespace+"/"+k.Secret)
			return saved, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("saving Secret %s/%s: %w", k.Namespace, k.Secret, err)
		}
	}
}

// renew renews what is due in a Secret.
func (k *Keeper) renew(secret *corev1.Secret) (changed bool, err error) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	now := k.Now()
	ca, caErr := tls.X509KeyPair(secret.Data[keyCA], secret.Data[keyCAKey]) // the first CA is the current one
	if caErr != nil || isDue(ca.Leaf, now) {
		if ca, err = k.newCA(secret, now); err != nil {
			return false, err
		}
		changed = true
	}
	serving, err := tls.X509KeyPair(secret.Data[keyServing], secret.Data[keyServingKey])
	if err == nil && !changed && !isDue(serving.Leaf, now) && serving.Leaf.CheckSignatureFrom(ca.Leaf) == nil &&
		serving.Leaf.VerifyHostname(k.serverName()) == nil {
		return false, nil
	}
	return true, k.newServing(secret, ca, now)
}

// isDue reports whether two thirds of the lifetime of a certificate have passed, or whether it is not valid yet.
func isDue(cert *x509.Certificate, now time.Time) bool {
	return now.Before(cert.NotBefore) || now.After(cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore)*2/3))
}

// serverName is the name at which the API server connects to the webhook.
func (k *Keeper) serverName() string { return k.Service + "." + k.Namespace + ".svc" }

// newCA puts a new CA before the earlier ones that have not expired.
func (k *Keeper) newCA(secret *corev1.Secret, now time.Time) (ca tls.Certificate, err error) {
	key, keyText, err := pki.NewKey()
	if err != nil {
		return ca, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "slipway-webhook-ca"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage:  x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(caLifetime),
	}
	text, err := pki.SignCertificate(template, template, key.Public(), key)
	if err != nil {
		return ca, fmt.Errorf("making the CA of the webhook: %w", err)
	}
	earlier, err := pki.ParseAuthorities(secret.Data[keyCA])
	if err != nil {
		earlier = nil // nothing trusts an invalid certificate
	}
	made, err := pki.ParseAuthorities(text)
	if err != nil {
		return ca, err
	}
	for _, a := range earlier {
		if now.Before(a.Ends) {
			made = append(made, a)
		}
	}
	secret.Data[keyCA], secret.Data[keyCAKey] = pki.BundleCAs(made...), keyText
	return tls.X509KeyPair(text, keyText)
}

// newServing makes a new certificate.
func (k *Keeper) newServing(secret *corev1.Secret, ca tls.Certificate, now time.Time) error {
	key, keyText, err := pki.NewKey()
	if err != nil {
		return err
	}
	signer, err := pki.ParseKey(secret.Data[keyCAKey])
	if err != nil {
		return fmt.Errorf("reading the key of the CA of the webhook: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: k.Service}, DNSNames: []string{k.serverName(), k.Service + "." + k.Namespace},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(servingLifetime),
	}
	text, err := pki.SignCertificate(template, ca.Leaf, key.Public(), signer)
	if err != nil {
		return fmt.Errorf("making the certificate of the webhook: %w", err)
	}
	secret.Data[keyServing], secret.Data[keyServingKey] = text, keyText
	return nil
}

// ensureBundle writes the CA into the configuration of the webhook. A missing configuration is not made: the
// installation does that.
func (k *Keeper) ensureBundle(ctx context.Context, ca []byte) error {
	configurations := k.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	for {
		is, err := configurations.Get(ctx, k.Configuration, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading ValidatingWebhookConfiguration %s: %w", k.Configuration, err)
		}
		if hasBundle(is, ca) {
			return nil
		}
		for i := range is.Webhooks {
			is.Webhooks[i].ClientConfig.CABundle = ca
		}
		_, err = configurations.Update(ctx, is, metav1.UpdateOptions{})
		if err == nil || !apierrors.IsConflict(err) {
			return err
		}
	}
}

func hasBundle(c *admissionregistrationv1.ValidatingWebhookConfiguration, ca []byte) bool {
	for i := range c.Webhooks {
		if !bytes.Equal(c.Webhooks[i].ClientConfig.CABundle, ca) {
			return false
		}
	}
	return true
}
