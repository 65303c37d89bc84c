// Package useraccess issues client certificates for users of the management server, through
// its certificates API.
package useraccess

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/pki"
)

const (
	idInvalidUser = "server-user-invalid"
	idNotSigned   = "server-certificate-not-signed"

	// MinTTL is the shortest lifetime of a certificate: the server signs no shorter one.
	MinTTL = 10 * time.Minute
	// MaxTTL is the longest lifetime of a certificate, which cannot be revoked before it
	// expires.
	MaxTTL = 365 * 24 * time.Hour
	// signTime is the time in which the server must sign a request.
	signTime = 30 * time.Second
	// maxName is the maximum length of a name in a certificate.
	maxName = 64
)

// A Request describes a user.
type Request struct {
	User   string
	Groups []string
	TTL    time.Duration
	// Server is the URL in the kubeconfig.
	Server string
}

// check refuses requests that the server would refuse, with a better message.
func (r Request) check() error {
	for _, name := range append([]string{r.User}, r.Groups...) {
		switch {
		case name == "" || len(name) > maxName || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return diag.Refuse(idInvalidUser, fmt.Sprintf("%.80q is not a valid name of a user or group", name),
				fmt.Sprintf("use 1 to %d characters without control characters", maxName))
		case strings.HasPrefix(name, "system:"):
			return diag.Refuse(idInvalidUser, fmt.Sprintf("%.80q is reserved: names that begin with system: belong to Kubernetes", name),
				"select another name, and bind it to a role: kubectl create clusterrolebinding")
		}
	}
	if r.TTL < MinTTL || r.TTL > MaxTTL {
		return diag.Refuse(idInvalidUser, fmt.Sprintf("a lifetime of %s is not possible", r.TTL),
			fmt.Sprintf("set --ttl to a time from %s to %s", MinTTL, MaxTTL))
	}
	return nil
}

// Issue returns a kubeconfig with a new key and a certificate for it. The key leaves this
// process only in the result.
func Issue(ctx context.Context, config *rest.Config, r Request) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	key, keyText, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	raw, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: r.User, Organization: r.Groups}}, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate request: %w", err)
	}
	certificate, err := requestCertificate(ctx, client, raw, r.TTL)
	if err != nil {
		return nil, err
	}
	return encodeKubeconfig(config, r, certificate, keyText)
}

// requestCertificate asks the server for a certificate, approves the request, and waits until it
// is signed.
func requestCertificate(ctx context.Context, client kubernetes.Interface, raw []byte, ttl time.Duration) (certificate []byte, err error) {
	requests := client.CertificatesV1().CertificateSigningRequests()
	seconds := int32(ttl / time.Second)
	made, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "slipwayd-kubeconfig-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: raw}),
			SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: &seconds,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating the certificate request: %w", err)
	}
	defer func() {
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), signTime)
		defer cancel()
		err = errors.Join(err, requests.Delete(rest, made.Name, metav1.DeleteOptions{}))
	}()
	made.Status.Conditions = append(made.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Administrator",
		Message: "approved by slipwayd kubeconfig",
	})
	if _, err := requests.UpdateApproval(ctx, made.Name, made, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("approving the certificate request: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, signTime, true, func(ctx context.Context) (bool, error) {
		now, err := requests.Get(ctx, made.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		certificate = now.Status.Certificate
		return len(certificate) > 0, findFailure(now.Status.Conditions)
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, diag.Refuse(idNotSigned, fmt.Sprintf("the server has not signed the certificate within %s", signTime),
			"if the controllers are on hold after a restore, run 'slipwayd release'; else read the log of the server")
	}
	return certificate, err
}

// findFailure returns the failure in the conditions of a request.
func findFailure(conditions []certificatesv1.CertificateSigningRequestCondition) error {
	i := slices.IndexFunc(conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateFailed || c.Type == certificatesv1.CertificateDenied
	})
	if i < 0 {
		return nil
	}
	return fmt.Errorf("the server has not signed the certificate: %s", conditions[i].Message)
}

// encodeKubeconfig returns the kubeconfig of the user.
func encodeKubeconfig(config *rest.Config, r Request, certificate, key []byte) ([]byte, error) {
	const name = "slipway"
	out := clientcmdapi.NewConfig()
	out.Clusters[name] = &clientcmdapi.Cluster{Server: r.Server, CertificateAuthorityData: config.CAData}
	out.AuthInfos[r.User] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: r.User}
	out.CurrentContext = name
	text, err := clientcmd.Write(*out)
	if err != nil {
		return nil, fmt.Errorf("encoding the kubeconfig: %w", err)
	}
	return text, nil
}
