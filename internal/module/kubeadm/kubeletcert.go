package kubeadm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
)

const (
	// StepServing is the step after which the kubelets of existing nodes use serving
	// certificates signed by the cluster.
	StepServing = "kubelet.serving"
	// StepReadmitServing is the step after which kubelets with new credentials use serving
	// certificates of the CA that signed the credentials.
	StepReadmitServing = "readmit.serving"
	// servingTime is the timeout for a kubelet to request its certificate, to receive it
	// and to serve with it.
	servingTime = 4 * time.Minute
	// lookTime is the timeout for reading the serving certificate of a kubelet.
	lookTime = 10 * time.Second
	// refusedTime is how long a request that must not be approved may remain before the
	// step fails. A kubelet waits much longer before it sends another request, and the
	// request may be older than its present addresses.
	refusedTime = 10 * time.Second
	// idKubeletCert identifies a kubelet without a serving certificate of the cluster.
	idKubeletCert = "kubelet-certificate-missing"
)

// RestartKubeletAndApproveCert is the module that restarts the kubelet of an existing
// node when its settings change, like RestartKubelet. It also waits until the kubelet
// uses a serving certificate signed by the cluster, before the next node.
func RestartKubeletAndApproveCert(env module.Env) engine.Module {
	m := RestartKubelet(env)
	t := servingCert(env, StepServing)
	t.On = m.Tasks[0].On
	m.Tasks = append(m.Tasks, t)
	return m
}

// ApproveKubeletCerts is the module that makes the kubelets of nodes use serving
// certificates signed by the cluster. In a running cluster, these are the nodes that
// join.
func ApproveKubeletCerts(env module.Env) engine.Module {
	t := servingCert(env, "nodes.serving")
	t.On = func(h *engine.Host) bool { return module.IsNode(h) && !(env.IsRunning && module.IsJoined(h)) }
	return engine.Module{Name: "nodes", Tasks: []engine.Task{t}}
}

// readmitServing is the task for nodes whose kubelets receive new credentials. given
// selects the nodes whose kubelets remove their present certificate first.
func readmitServing(env module.Env, on, given func(*engine.Host) bool) engine.Task {
	t := servingCert(env, StepReadmitServing)
	t.On = on
	check := t.Run.Check
	t.Run.Check = func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
		if s.OperationID() == "" && given(s.Host()) {
			return servingChange(s.Host()), nil
		}
		return check(ctx, s)
	}
	return t
}

// servingChange returns the planned change of a kubelet that receives a serving
// certificate.
func servingChange(h *engine.Host) []plan.OpChange {
	return []plan.OpChange{{
		Kind: "certificate", Target: "kubelet of " + h.Name, Summary: "serve with a certificate signed by the cluster",
	}}
}

// servingCert is the task that approves the request of the kubelet of a node, and waits
// until the kubelet serves with the certificate.
func servingCert(env module.Env, id string) engine.Task {
	return engine.Task{
		ID: id, Title: "approve kubelet certificate", On: module.IsNode, Timeout: 2 * servingTime,
		When: func(*engine.Scope) bool { return spec.SignsKubelets(env.Cluster) },
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				missing, err := missingCertReason(ctx, s.Host())
				if err != nil || missing == "" && !servesWrongAddress(ctx, env, s) {
					return nil, err
				}
				return servingChange(s.Host()), nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error { return approveUntilServing(ctx, env, s) },
		},
	}
}

// missingCertReason returns why the kubelet of a host has no valid serving certificate
// signed by the cluster, or "".
func missingCertReason(ctx context.Context, h *engine.Host) (string, error) {
	results, err := h.Conn.Check(ctx, op.List{op.Wait{Certificate: module.ServingCert}})
	if err == nil && len(results) == 1 && results[0].Status == op.Unchanged {
		return "", nil
	}
	return "the kubelet has not received a serving certificate", err
}

// approveUntilServing approves the requests of the kubelet of a node, until it serves
// with the certificate.
func approveUntilServing(ctx context.Context, env module.Env, s *engine.Scope) error {
	client, roots, err := connectAsAdmin(ctx, env, s) // the control plane may be busy with another step
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, servingTime)
	defer cancel()
	kubelet := env.KubeletIdentity(s.Host())
	var refused time.Time
	err = client.WaitUntil(ctx, func(ctx context.Context) (string, error) {
		why, err := missingCertReason(ctx, s.Host())
		if err == nil && why == "" {
			why = userText(checkServingCert(ctx, env, s.Host(), roots))
		}
		if err != nil || why == "" {
			return "", err
		}
		approved, left, err := client.CertificateRequests().ApproveServing(ctx, kubelet)
		switch {
		case err != nil:
			return "", err
		case len(approved) > 0:
			refused = time.Time{}
			s.ShowProgress("approved %s", strings.Join(approved, ", "))
		case len(left) > 0 && refused.IsZero():
			refused = time.Now()
		case len(left) > 0 && time.Since(refused) > refusedTime:
			return "", errors.New("a request is left pending: " + strings.Join(left, "; "))
		}
		return why, nil
	})
	if err != nil {
		return &op.Error{Reason: idKubeletCert, Message: "the kubelet does not serve with a certificate signed by the cluster: " + err.Error()}
	}
	return nil
}

// checkServingCert returns why a kubelet does not serve yet with a certificate for its
// address signed by a CA of the cluster, or nil.
func checkServingCert(ctx context.Context, env module.Env, h *engine.Host, roots *x509.CertPool) error {
	at := env.KubeletAddress(h)
	conn, err := h.Conn.DialContext(ctx, "tcp", at)
	if err != nil {
		return err
	}
	defer conn.Close()
	host, _, err := net.SplitHostPort(at)
	if err == nil {
		err = tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// userText returns an error for the user, "" for nil.
func userText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// servesWrongAddress reports whether the kubelet of a host serves with a certificate of
// the cluster for another address. The kubelet requests the right one. It returns false
// if the certificate cannot be read.
func servesWrongAddress(ctx context.Context, env module.Env, s *engine.Scope) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	client, roots, err := connectAsAdmin(ctx, env, s)
	if err != nil {
		return false
	}
	client.Close()
	return errors.As(checkServingCert(ctx, env, s.Host(), roots), new(x509.HostnameError))
}

// connectAsAdmin returns a client of the API with administrator rights, and the CAs of
// the cluster, as a control plane has them now. It can be used where no step provides a
// client, and during a rotation of the CA.
func connectAsAdmin(ctx context.Context, env module.Env, s *engine.Scope) (*kube.Client, *x509.CertPool, error) {
	why := errors.New("no control plane is available")
	for _, h := range controlPlanes(env, s) {
		results, err := h.Conn.Check(ctx,
			op.List{op.ReadFile{Path: adminConf, Secret: true}, op.ReadFile{Path: caCert}, op.ReadFile{Path: module.NextCA}})
		if err == nil && (len(results) != 3 || results[0].Missing || results[1].Missing) {
			err = fmt.Errorf("%s has no %s", h.Name, adminConf)
		}
		if err != nil {
			why = err
			continue
		}
		trust := append(append([]byte{}, results[1].Output...), append([]byte("\n"), results[2].Output...)...)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(trust)
		client, err := kube.New(results[0].Output, dialServerOf(s, h),
			kube.Options{Address: localAPIAddress(env), Patience: apiPatience, Trust: trust})
		return client, roots, err
	}
	return nil, nil, fmt.Errorf("reaching the API: %w", why)
}

// controlPlanes returns the control planes that take part, the leader first.
func controlPlanes(env module.Env, s *engine.Scope) (out []*engine.Host) {
	for _, first := range []bool{true, false} {
		for _, h := range s.Hosts() {
			if h.HasRole(v1alpha1.RoleControlPlane) && h.Conn != nil && env.IsFirst(h) == first {
				out = append(out, h)
			}
		}
	}
	return out
}
