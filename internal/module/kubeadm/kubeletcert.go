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
	// StepServing is the step after which the kubelets of nodes that the cluster has
	// serve with certificates that the cluster has signed.
	StepServing = "kubelet.serving"
	// StepReadmitServing is the step after which kubelets that have got other
	// credentials serve with certificates of the CA that has signed these.
	StepReadmitServing = "readmit.serving"
	// servingTime bounds the wait for a kubelet to ask for its certificate, to get it
	// and to serve with it.
	servingTime = 4 * time.Minute
	// lookTime bounds a look at what a kubelet serves with.
	lookTime = 10 * time.Second
	// refusedTime is how long a request that may not be approved is left alone before
	// the step fails: a kubelet waits much longer before it asks for something else, and
	// the request may be older than its present addresses.
	refusedTime = 10 * time.Second
	// idKubeletCert is a kubelet without a serving certificate of the cluster.
	idKubeletCert = "kubelet-certificate-missing"
)

// RestartServing is the module that restarts the kubelet of a node that the cluster
// has when its settings change, as Restart does, and has it serve with a certificate
// that the cluster has signed before the next node's turn comes.
func RestartServing(env module.Env) engine.Module {
	m := Restart(env)
	t := servingCert(env, StepServing)
	t.On = m.Tasks[0].On
	m.Tasks = append(m.Tasks, t)
	return m
}

// Serving is the module that has the kubelets of nodes serve with certificates that
// the cluster has signed. In a cluster that runs, these are the nodes that join.
func Serving(env module.Env) engine.Module {
	t := servingCert(env, "nodes.serving")
	t.On = func(h *engine.Host) bool { return module.IsNode(h) && !(env.Gated && module.Holds(h)) }
	return engine.Module{Name: "nodes", Tasks: []engine.Task{t}}
}

// readmitServing is the task of nodes whose kubelets get other credentials. given are
// the nodes whose kubelets give up the certificate that they have before.
func readmitServing(env module.Env, on, given func(*engine.Host) bool) engine.Task {
	t := servingCert(env, StepReadmitServing)
	t.On = on
	check := t.Run.Check
	t.Run.Check = func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
		if s.Operation() == "" && given(s.Host()) {
			return servingChange(s.Host()), nil
		}
		return check(ctx, s)
	}
	return t
}

// servingChange is what a plan says of a kubelet that gets a serving certificate.
func servingChange(h *engine.Host) []plan.OpChange {
	return []plan.OpChange{{
		Kind: "certificate", Target: "kubelet of " + h.Name, Summary: "serve with a certificate that the cluster has signed",
	}}
}

// servingCert is the task that approves what the kubelet of a node asks for, and waits
// until the kubelet serves with it.
func servingCert(env module.Env, id string) engine.Task {
	return engine.Task{
		ID: id, Title: "approve the kubelet's certificate", On: module.IsNode, Timeout: 2 * servingTime,
		When: func(*engine.Scope) bool { return spec.SignsKubelets(env.Cluster) },
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				missing, err := certMissing(ctx, s.Host())
				if err != nil || missing == "" && !misnamed(ctx, env, s) {
					return nil, err
				}
				return servingChange(s.Host()), nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error { return serveSigned(ctx, env, s) },
		},
	}
}

// certMissing returns why the kubelet of a host has no valid serving certificate that
// the cluster has signed, or "".
func certMissing(ctx context.Context, h *engine.Host) (string, error) {
	results, err := h.Conn.Check(ctx, op.List{op.Wait{Certificate: module.ServingCert}})
	if err == nil && len(results) == 1 && results[0].Status == op.Unchanged {
		return "", nil
	}
	return "the kubelet has not received a serving certificate", err
}

// serveSigned approves what the kubelet of a node asks for, until it serves with it.
func serveSigned(ctx context.Context, env module.Env, s *engine.Scope) error {
	client, roots, err := admin(ctx, env, s) // the control plane may be busy with another step
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, servingTime)
	defer cancel()
	kubelet := env.KubeletIdentity(s.Host())
	var refused time.Time
	err = client.Until(ctx, func(ctx context.Context) (string, error) {
		why, err := certMissing(ctx, s.Host())
		if err == nil && why == "" {
			why = text(servesWith(ctx, env, s.Host(), roots))
		}
		if err != nil || why == "" {
			return "", err
		}
		approved, left, err := client.ApproveServing(ctx, kubelet)
		switch {
		case err != nil:
			return "", err
		case len(approved) > 0:
			refused = time.Time{}
			s.Tell("approved %s", strings.Join(approved, ", "))
		case len(left) > 0 && refused.IsZero():
			refused = time.Now()
		case len(left) > 0 && time.Since(refused) > refusedTime:
			return "", errors.New("a request is left pending: " + strings.Join(left, "; "))
		}
		return why, nil
	})
	if err != nil {
		return &op.Error{Reason: idKubeletCert, Message: "the kubelet does not serve with a certificate that the cluster has signed: " + err.Error()}
	}
	return nil
}

// servesWith returns why a kubelet does not serve yet with a certificate for its
// address that one of the cluster's CAs has signed, or nil.
func servesWith(ctx context.Context, env module.Env, h *engine.Host, roots *x509.CertPool) error {
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

// text is an error for people, "" for none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// misnamed reports whether the kubelet of a host serves with a certificate of the
// cluster that is for another address. The kubelet asks for the right one. It
// reports false if the certificate cannot be read.
func misnamed(ctx context.Context, env module.Env, s *engine.Scope) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	client, roots, err := admin(ctx, env, s)
	if err != nil {
		return false
	}
	client.Close()
	return errors.As(servesWith(ctx, env, s.Host(), roots), new(x509.HostnameError))
}

// admin is a client of the API with an administrator's rights, and the CAs of the
// cluster, as a control plane has them now: it can be used where no step provides
// one, and while the CA is exchanged.
func admin(ctx context.Context, env module.Env, s *engine.Scope) (*kube.Client, *x509.CertPool, error) {
	why := errors.New("no control plane takes part")
	for _, h := range controlPlanes(env, s) {
		results, err := h.Conn.Check(ctx, op.List{op.ReadFile{Path: adminConf, Secret: true}, op.ReadFile{Path: caCert}, op.ReadFile{Path: module.NextCA}})
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
		client, err := kube.New(results[0].Output, serverOf(s, h), kube.Options{Address: localAPI(env), Patience: apiPatience, Trust: trust})
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
