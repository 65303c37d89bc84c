//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// kubeletsServeSigned wants every kubelet to serve with a certificate that the CA of
// the cluster has signed for its node's name and address, and to be of use.
func (u *user) kubeletsServeSigned(t *testing.T, cluster string, addresses map[string]string) {
	t.Helper()
	for node, address := range addresses {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(u.mustExec(t, node, "cat", "/etc/kubernetes/pki/ca.crt"))) {
			t.Fatalf("%s has no CA", node)
		}
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second},
			"tcp", net.JoinHostPort(address, "10250"), &tls.Config{RootCAs: roots, ServerName: address, MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Errorf("the kubelet of %s: %v", node, err)
			continue
		}
		cert := conn.ConnectionState().PeerCertificates[0]
		if cert.Subject.CommonName != "system:node:"+node || !slices.Equal(cert.DNSNames, []string{node}) {
			t.Errorf("the kubelet of %s shows a certificate of %s for %v", node, cert.Subject.CommonName, cert.DNSNames)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if log := u.mustKubectl(t, cluster, "-n", "kube-system", "logs", "-l", "k8s-app=kube-proxy", "--tail=1"); strings.TrimSpace(log) == "" {
		t.Error("kube-proxy has no log")
	}
	if out := u.mustKubectl(t, cluster, "-n", "kube-system", "exec", "daemonset/kube-proxy",
		"--", "/usr/local/bin/kube-proxy", "--version"); !strings.HasPrefix(out, "Kubernetes v") {
		t.Errorf("a program in a pod says %q", out)
	}
	const requests = `jsonpath={range .items[?(@.spec.signerName=="kubernetes.io/kubelet-serving")]}` +
		`{.metadata.name}={.status.conditions[*].type} {end}`
	if pending := u.mustKubectl(t, cluster, "get", "csr", "-o", requests); strings.Contains(pending, "= ") {
		t.Errorf("requests are pending: %s", pending)
	}
}

// asksAgain makes the kubelet of a worker request its certificate while no manager runs: a
// control plane approves the request.
func (u *user) asksAgain(t *testing.T, controlPlane, worker string) {
	t.Helper()
	u.mustExec(t, worker, "sh", "-c", "rm /var/lib/kubelet/pki/kubelet-server-* && systemctl restart kubelet")
	eventually(t, 3*time.Minute, "the kubelet of "+worker+" to have its certificate", func() error {
		u.mustExec(t, controlPlane, "systemctl", "start", "slipway-approve.service")
		if r := u.runSlipway(t, "sandbox", "exec", worker, "--", "test", "-e", "/var/lib/kubelet/pki/kubelet-server-current.pem"); r.code != 0 {
			return errors.New("it has none")
		}
		return nil
	})
}
