package kubeadm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	certs "slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
)

var (
	keyToken = engine.NewKey("kubeadm.token", "(join token)")
	// keyCA has the CA certificates that the cluster trusts, PEM-encoded.
	keyCA = engine.NewKey("kubeadm.ca", []byte("(certificate of the CA)"))
	// KeyAdminConf is the kubeconfig of the administrator.
	KeyAdminConf = engine.NewKey("kubeadm.admin", kubeconfig.Untrusted{})
)

// adminTask reads the credentials that kubeadm created, for all later tasks that use the
// API. coming reads CAs that are trusted for API servers in addition to the current one.
func adminTask(env module.Env, dial func(*engine.Scope) kube.DialFunc, coming ...op.Op) engine.Task {
	return engine.Task{
		ID: "kubeadm.admin", Title: "connect to API", On: env.IsFirst,
		Provides: []engine.KeyRef{module.KeyKube.Ref(), KeyAdminConf.Ref(), keyCA.Ref()},
		Ops: func(*engine.Scope) (op.List, error) {
			return append(op.List{op.ReadFile{Path: adminConf, Secret: true}, op.ReadFile{Path: caCert}}, coming...), nil
		},
		After: func(ctx context.Context, s *engine.Scope, results []op.Result) error {
			if results[0].Missing || results[1].Missing {
				return nil // no files yet; dependent steps are pending
			}
			authorities, err := certs.ParseAuthorities(results[1].Output)
			if err != nil {
				return fmt.Errorf("reading %s: %w", caCert, err)
			}
			var trust []byte
			for _, r := range results[2:] {
				trust = append(trust, r.Output...)
			}
			client := func(patience time.Duration) (*kube.Client, error) {
				return kube.New(results[0].Output, dial(s), kube.Options{Address: localAPIAddress(env), Patience: patience, Trust: trust})
			}
			if err := provideClient(ctx, s, module.KeyKube, client); err != nil {
				return err
			}
			engine.ProvideValue(s, KeyAdminConf, kubeconfig.Untrusted{Text: results[0].Output})
			engine.ProvideValue(s, keyCA, certs.BundleCAs(authorities...))
			return nil
		},
	}
}

// provideClient provides a client of the API. While an operation is planned, it does so
// only if the API answers.
func provideClient(ctx context.Context, s *engine.Scope, key engine.Key[*kube.Client],
	client func(patience time.Duration) (*kube.Client, error),
) error {
	now, err := client(0)
	if err != nil || s.OperationID() == "" && !apiAnswers(ctx, now) {
		return err
	}
	patient, err := client(apiPatience)
	if err == nil {
		engine.ProvideValue(s, key, patient)
	}
	return err
}

// dialLocalServer reaches the API server of the host itself.
func dialLocalServer(s *engine.Scope) kube.DialFunc { return s.Host().Conn.DialContext }

// dialAnyServer reaches that API server or, while it accepts no connections, the API
// server of another control plane. Their certificates have the same CA.
func dialAnyServer(s *engine.Scope) kube.DialFunc { return dialServerOf(s, s.Host()) }

// dialServerOf reaches the API server of a host, or of another control plane.
func dialServerOf(s *engine.Scope, first *engine.Host) kube.DialFunc {
	from := []*engine.Host{first}
	for _, h := range s.Hosts() {
		if h.Name != first.Name && h.HasRole(v1alpha1.RoleControlPlane) && h.Conn != nil {
			from = append(from, h)
		}
	}
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		for _, h := range from {
			var failed error
			if conn, failed = h.Conn.DialContext(ctx, network, address); failed == nil {
				return conn, nil
			}
			if err = errors.Join(err, failed); ctx.Err() != nil {
				break
			}
		}
		return nil, err
	}
}

// apiPatience is how long an API server that has answered, or that the operation restarts,
// may be down: the time of a start. An API server that answers during planning may be
// restarted by an earlier attempt.
const apiPatience = time.Minute

// apiAnswers reports whether the API can be used. After an interrupted setup, a control
// plane may have credentials, but no API server that answers or accepts them. Dependent
// steps are then pending.
func apiAnswers(ctx context.Context, client *kube.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := client.ConfigMaps().Get(ctx, "kube-system", "kubeadm-config")
	return err == nil
}

// The tasks that create a join token: for nodes that join, and for kubelets that need new
// credentials.
const (
	taskJoinToken    = "join.token"
	taskReadmitToken = "readmit.token"
)

// CreatesToken reports whether a task creates a join token that is valid for longer than the
// task. The phases of kubeadm create tokens for one minute.
func CreatesToken(task string) bool { return task == taskJoinToken || task == taskReadmitToken }

// JoinNodes is the module that joins nodes: workers as soon as the API is ready, and
// control planes at the same time, one after the other only where etcd requires it. The
// given steps must end first, because the nodes use their results.
func JoinNodes(env module.Env, after ...string) engine.Module {
	wanted := func(s *engine.Scope) bool { return hasWaitingNode(env, s.Hosts()) }
	token := []engine.KeyRef{keyToken.Ref(), keyCA.Ref()}
	tasks := []engine.Task{{
		ID: taskJoinToken, Title: "create join token", Manager: true, When: wanted, Needs: after,
		Consumes: []engine.KeyRef{module.KeyKube.Ref()}, Provides: []engine.KeyRef{keyToken.Ref()},
		Run: tokenAction(env),
	}}
	tasks = append(tasks, engine.Task{
		ID: "join.preflight", Title: "run kubeadm preflight checks", On: env.IsJoinNode,
		When:     func(s *engine.Scope) bool { return !hasBegunJoining(s.Host()) },
		Consumes: token,
		Ops: func(s *engine.Scope) (op.List, error) {
			return joinPhase(env, s, joinStep{name: "preflight", creates: []string{module.ClientCert}})
		},
	})
	tasks = append(tasks, engine.Task{
		ID: "join.kubelet-start", Title: "start kubelet", On: env.IsJoinNode,
		Consumes: token, Timeout: 8 * time.Minute,
		Ops: func(s *engine.Scope) (op.List, error) { return joinPhase(env, s, kubeletStartStep()) },
	}, etcdTask(env), componentsTask(env), engine.Task{
		ID: "join.bootstrap", Title: "join cluster", On: env.IsJoinNode, Timeout: 8 * time.Minute,
		Ops: func(*engine.Scope) (op.List, error) {
			// The kubelet then has its own credentials, and nothing reads these files.
			return op.List{
				op.Wait{Path: module.ClientCert, TimeoutSeconds: 420}, op.Absent{Path: bootstrapConf}, op.Absent{Path: discoveryFile},
			}, nil
		},
	})
	tasks = append(tasks, serveTasks(env)...)
	return engine.Module{Name: "join", Tasks: append(tasks, revokeTokensTask(env, wanted, "join.bootstrap"))}
}

// tokenAction creates a join token.
func tokenAction(env module.Env) *engine.Action {
	return &engine.Action{
		Check: func(_ context.Context, s *engine.Scope) ([]plan.OpChange, error) {
			engine.GetValue(s, module.KeyKube)
			return []plan.OpChange{{Kind: "token", Target: "join", Summary: "for one hour, deleted when done"}}, nil
		},
		Apply: func(ctx context.Context, s *engine.Scope) error { return makeToken(ctx, env, s) },
	}
}

// RevokeJoinTokens is the module that deletes join tokens and nothing else.
func RevokeJoinTokens(env module.Env) engine.Module {
	waiting := func(s *engine.Scope) bool { return hasWaitingNode(env, s.Hosts()) }
	return engine.Module{Name: "join", Tasks: []engine.Task{adminTask(env, dialLocalServer), revokeTokensTask(env, waiting)}}
}

// revokeTokensTask deletes the join tokens: existing ones and, if made, the ones that the
// operation creates.
func revokeTokensTask(env module.Env, made func(*engine.Scope) bool, after ...string) engine.Task {
	return revokeTokensTaskWith(env, module.KeyKube, made, after...)
}

// revokeTokensTaskWith deletes them with a given client.
func revokeTokensTaskWith(env module.Env, by engine.Key[*kube.Client], made func(*engine.Scope) bool, after ...string) engine.Task {
	return engine.Task{
		ID: "join.token-end", Title: "delete join tokens", Manager: true,
		Needs: after, Consumes: []engine.KeyRef{by.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				return staleTokens(ctx, env, engine.GetValue(s, by), made(s))
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				return deleteTokens(ctx, env, engine.GetValue(s, by))
			},
		},
	}
}

// hasWaitingNode reports whether a node has not joined, according to its facts. An
// interrupted node has both its own credentials and the bootstrap credentials. Its join
// phase, which needs a token again, may be almost complete.
func hasWaitingNode(env module.Env, hosts []*engine.Host) bool {
	return slices.ContainsFunc(hosts, func(h *engine.Host) bool { return env.IsStaying(h) && env.IsJoinNode(h) && isWaiting(h) })
}

// isWaiting is waiting for a single node.
func isWaiting(h *engine.Host) bool {
	return h.Facts != nil && (!slices.Contains(h.Facts.Present, module.ClientCert) || slices.Contains(h.Facts.Present, bootstrapConf))
}

// hasBegunJoining reports whether a node has begun to join, or has joined. The
// preflight checks, which are for a host without a cluster, would then fail. On a
// control plane they need the shared certificates.
func hasBegunJoining(h *engine.Host) bool {
	marks := []string{bootstrapConf, kubeletConf, "/etc/kubernetes/pki/*.crt"}
	if h.HasRole(v1alpha1.RoleControlPlane) {
		marks = []string{bootstrapConf, kubeletConf, manifestPath("*")}
	}
	return h.Facts != nil && h.Facts.Ledger && slices.ContainsFunc(marks, func(path string) bool {
		return slices.Contains(h.Facts.Present, path)
	})
}

// A joinStep is a phase of `kubeadm join` that needs the token.
type joinStep struct {
	name    string
	creates []string
	keeps   []string
	// declares lists other files that it creates.
	declares   []string
	conclusive bool
}

// kubeletStartStep makes the kubelet request its credentials.
func kubeletStartStep() joinStep {
	return joinStep{
		name: "kubelet-start",
		// The kubelet receives this file when it joins. The phase must not run again after
		// that, whatever its result, because it would break a node that is already ready.
		creates: []string{module.ClientCert}, conclusive: true,
		declares: []string{kubeletConf, kubeletConfig, kubeletFlags, kubeletOwn, bootstrapConf, caCert},
		keeps:    kubeletBaselineFiles(),
	}
}

// joinPhase runs a phase of `kubeadm join`. Its input contains the token, so it is passed
// through stdin: the helper keeps it readable only for root, until the phase has ended.
func joinPhase(env module.Env, s *engine.Scope, j joinStep) (op.List, error) {
	docs, err := encodeDocuments(joinConfiguration(env, s.Host(), object{
		"file": object{"kubeConfigPath": discoveryFile}, "tlsBootstrapToken": engine.GetValue(s, keyToken),
	}))
	if err != nil {
		return nil, err
	}
	phase := op.Exec{
		Name:  "kubeadm-join-" + j.name,
		Argv:  []string{program, "join", "phase", j.name, "--config", "/dev/stdin"},
		Stdin: docs, SecretStdin: true, Whole: true, TimeoutSeconds: 420, Hosts: joinHostsEntry(env, s.Host()),
		Creates: j.creates, Keeps: j.keeps, Declares: j.declares, Conclusive: j.conclusive,
	}
	if !isWaiting(s.Host()) {
		return op.List{phase}, nil
	}
	discovery, err := discoveryKubeconfig(env, engine.GetValue(s, keyCA))
	if err != nil {
		return nil, err
	}
	return op.List{op.File{Path: discoveryFile, Mode: 0o600, Content: discovery}, phase}, nil
}

// discoveryKubeconfig returns the address of the API and its CA for a node that joins.
// With only the token, kubeadm would read both from the cluster, which signs them for each
// token: that takes several seconds, longest in a new cluster.
func discoveryKubeconfig(env module.Env, ca []byte) ([]byte, error) {
	return kubeconfigDocument(env, object{"certificate-authority-data": ca}, object{})
}

// joinHostsEntry makes kubeadm reach the API on the leader control plane if the API name
// leads to something that is not ready yet: the API server of the host itself, its load
// balancer, or an external one without a server. The kubelet and pods see the final
// address from the start. A node that has joined reaches the API at its usual address.
func joinHostsEntry(env module.Env, h *engine.Host) map[string]string {
	first := module.InternalAddress(env.FirstControlPlane())
	if module.IsJoined(h) || spec.EndpointAddress(env.Cluster, h.Host) == first {
		return nil
	}
	return map[string]string{env.Cluster.Spec.ControlPlaneEndpoint.Domain: first}
}

func tokenDescription(env module.Env) string { return "slipway: nodes join " + env.Cluster.Name }

// makeToken creates a bootstrap token with which nodes can join for one hour.
func makeToken(ctx context.Context, env module.Env, s *engine.Scope) error {
	id, err := randomText(6)
	if err != nil {
		return err
	}
	value, err := randomText(16)
	if err != nil {
		return err
	}
	err = engine.GetValue(s, module.KeyKube).BootstrapTokens().Create(ctx, kube.BootstrapToken{
		ID: id, Secret: value, Description: tokenDescription(env), Validity: time.Hour,
	})
	if err != nil {
		return fmt.Errorf("creating a join token: %w", err)
	}
	engine.ProvideValue(s, keyToken, id+"."+value)
	return nil
}

func staleTokens(ctx context.Context, env module.Env, client *kube.Client, made bool) ([]plan.OpChange, error) {
	change := []plan.OpChange{{Kind: "token", Target: "join", Summary: "delete"}}
	if client == nil {
		return change, nil
	}
	ids, err := client.BootstrapTokens().List(ctx, tokenDescription(env))
	if err != nil {
		return nil, fmt.Errorf("listing join tokens: %w", err)
	}
	if len(ids) == 0 && !made {
		return nil, nil
	}
	return change, nil
}

func deleteTokens(ctx context.Context, env module.Env, client *kube.Client) error {
	ids, err := client.BootstrapTokens().List(ctx, tokenDescription(env))
	for _, id := range ids {
		err = errors.Join(err, client.BootstrapTokens().Delete(ctx, id))
	}
	if err != nil {
		return fmt.Errorf("deleting join tokens: %w", err)
	}
	return nil
}

// randomText returns n random characters that are allowed in a bootstrap token.
func randomText(n int) (string, error) {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, n)
	for i := range out {
		v, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
		if err != nil {
			return "", err
		}
		out[i] = letters[v.Int64()]
	}
	return string(out), nil
}
