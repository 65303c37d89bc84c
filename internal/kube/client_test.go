package kube

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag/errorcode"
)

func TestNew_RefusesUnsafeKubeconfigs(t *testing.T) {
	tests := map[string]struct {
		reason        string
		cluster, user string
		want          string
	}{
		"unverified": {
			"a server that nobody verifies can be anyone",
			"server: https://a, insecure-skip-tls-verify: true", "token: x", "insecure-skip-tls-verify",
		},
		"no TLS": {
			"credentials must not be sent in the clear",
			"server: http://a", "token: x", "https://",
		},
		"no scheme": {
			"client-go takes http:// for it",
			"server: a:6443", "token: x", "https://",
		},
		"proxy": {
			"it would see the names of servers, and is not used",
			"server: https://a, proxy-url: http://b", "token: x", "proxy-url",
		},
		"program": {
			"a kubeconfig from elsewhere must not run programs here",
			"server: https://a", "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}", "runs a program",
		},
		"key file": {
			"files named on another machine are not those of this one",
			"server: https://a", "client-certificate: /etc/kubernetes/pki/a.crt, client-key: /etc/kubernetes/pki/a.key", "names files",
		},
		"authority file": {
			"the same, of the authority",
			"server: https://a, certificate-authority: /etc/kubernetes/pki/ca.crt", "token: x", "names files",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := New(kubeconfigWith(tt.cluster, tt.user), nil, Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: error is %v, want it to say %q", tt.reason, err, tt.want)
			}
		})
	}
	for name, text := range map[string]string{
		"empty":      "",
		"no context": "apiVersion: v1\nkind: Config\n",
		"dangling":   "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: no, user: no}}]\n",
		"not YAML":   "\t{",
	} {
		if _, err := New([]byte(text), nil, Options{}); err == nil {
			t.Errorf("%s: a kubeconfig that names no cluster was taken", name)
		}
	}
}

func TestNew_DialsOverrideAndVerifiesServerCertificate(t *testing.T) {
	f := newFakeAPI(t, call{request: "GET /readyz", answer: "ok"})
	if err := f.newClient().CheckReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{f.server.Listener.Addr().String()}; !cmp.Equal(f.dialed, want) {
		t.Errorf("dialled %v, want %v: the override of the name in the kubeconfig", f.dialed, want)
	}
	c, err := New(f.adminKubeconfig("https://another.example.org:6443"), f.dialServer, Options{Address: f.server.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, c.CheckReady(t.Context()), ReasonCertificate)
}

func wantReason(t *testing.T, err error, want Reason) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Reason != want {
		t.Errorf("error is %v (%+v), want reason %s", err, e, want)
	}
}

func TestDescribeError_GivesReasonAndPlainMessage(t *testing.T) {
	tests := map[string]struct {
		reason string
		status int
		want   Reason
		temp   bool
		code   v1alpha1.ErrorCode
	}{
		"unauthorized": {
			"the certificate of the kubeconfig is of no use", 401, ReasonUnauthorized, false, v1alpha1.ErrorCredentials,
		},
		"forbidden":   {"waiting does not grant a permission", 403, ReasonForbidden, false, v1alpha1.ErrorCredentials},
		"conflict":    {"it can succeed after the object is read again", 409, ReasonConflict, true, v1alpha1.ErrorConflict},
		"invalid":     {"the object must be changed", 422, ReasonInvalid, false, v1alpha1.ErrorInternal},
		"unavailable": {"the server is starting", 503, ReasonUnavailable, true, v1alpha1.ErrorUnreachable},
		"internal":    {"etcd has no leader at the moment", 500, ReasonUnavailable, true, v1alpha1.ErrorUnreachable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t, call{request: "GET /api/v1/nodes", status: tt.status, answer: statusAnswer(tt.status, "no")})
			_, err := f.newClient().Nodes().List(t.Context())
			wantReason(t, err, tt.want)
			if IsTemporary(err) != tt.temp {
				t.Errorf("temporary is %v, want %v: %s", IsTemporary(err), tt.temp, tt.reason)
			}
			if code := errorcode.Of("Error", err); code != tt.code {
				t.Errorf("code %s, want %s: %s", code, tt.code, tt.reason)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		f := newFakeAPI(t)
		c, err := New(f.adminKubeconfig("https://example.com:6443"), nil, Options{Address: address})
		if err != nil {
			t.Fatal(err)
		}
		err = c.CheckReady(t.Context())
		wantReason(t, err, ReasonUnreachable)
		if !strings.Contains(err.Error(), "no API server is listening at example.com:6443") {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantReason(t, newFakeAPI(t).newClient().CheckReady(ctx), ReasonTimeout)
	})
}
