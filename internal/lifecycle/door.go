package lifecycle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/clusterstate"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/store"
)

// doorTime limits the wait for the API at its addresses, which are tried at the same
// time.
const doorTime = 3 * time.Second

// outside returns the API address of a cluster for this machine, "" if its description
// is not complete yet.
func outside(c *v1alpha1.Cluster) string {
	if doors := clusterstate.Doors(c); len(doors) > 0 {
		return doors[0]
	}
	return ""
}

// open returns the first of the API addresses at which the API is ready, "" if there is
// none.
func (s *service) open(ctx context.Context, conf []byte, doors []string) string {
	ctx, cancel := context.WithTimeout(ctx, doorTime)
	var asked errgroup.Group
	defer func() {
		cancel()
		_ = asked.Wait() // the results are in ready
	}()
	ready := make([]chan bool, len(doors))
	for i, door := range doors {
		ready[i] = make(chan bool, 1)
		asked.Go(func() error {
			ready[i] <- s.ready(ctx, conf, door)
			return nil
		})
	}
	for i, door := range doors {
		if <-ready[i] {
			return door
		}
	}
	return ""
}

func (s *service) ready(ctx context.Context, conf []byte, door string) bool {
	client, err := kube.New(conf, s.Dial, kube.Options{Address: door})
	if err != nil {
		return false
	}
	defer client.Close()
	return client.Healthy(ctx) == nil
}

// through returns a kubeconfig whose server is the first address at which the API is
// ready. If there is none, it uses the first address: the caller's request reports the
// error.
func (s *service) through(ctx context.Context, env module.Env, conf []byte) ([]byte, error) {
	admin, err := kubeconfig.ParseAdmin(conf)
	if err != nil {
		return nil, err
	}
	door := outside(env.Cluster)
	if doors := clusterstate.Doors(env.Cluster); len(doors) > 1 {
		door = cmp.Or(s.open(ctx, conf, doors), door)
	}
	return clusterstate.Through(env, admin, door)
}

// Kubeconfig returns the admin kubeconfig.
func (s *service) Kubeconfig(ctx context.Context, name string, live bool) ([]byte, diag.List, error) {
	c, err := found(s.Store.Cluster(name))
	if err != nil {
		return nil, nil, err
	}
	env, err := s.environment(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	kept := s.current
	if live {
		kept = s.live
	}
	conf, warnings, err := kept(ctx, env)
	if err != nil {
		return nil, warnings, err
	}
	conf, err = s.through(ctx, env, conf)
	return conf, warnings, err
}

// admin returns the saved admin kubeconfig.
func (s *service) admin(name string) ([]byte, error) {
	c, err := found(s.Store.Cluster(name))
	if err != nil {
		return nil, err
	}
	conf, err := found(s.Store.Kubeconfig(name))
	if errors.Is(err, ErrNotFound) {
		return nil, refused(idNoKubeconfig, "cluster "+name+" has no admin kubeconfig: its control plane is not running yet",
			"finish the creation: slipway resume "+name)
	}
	if err != nil {
		return nil, err
	}
	if _, err := kubeconfig.ParseAdmin(conf); err == nil {
		return conf, nil
	}
	// Earlier versions saved the fields of the host's file as they were.
	admin, err := kubeconfig.Untrusted{Text: conf}.Verify(nil)
	if err != nil {
		return nil, refused(idDamaged, s.Store.KubeconfigPath(name)+" cannot be used: "+err.Error(),
			"get it from a control plane: slipway kubeconfig "+name+" --live")
	}
	return clusterstate.Through(module.Env{Cluster: c}, admin, outside(c))
}

// current returns the saved admin kubeconfig. If its certificate has expired, hosts may
// have renewed theirs automatically: then current saves and returns the kubeconfig of a
// control plane. Warnings name the control planes whose kubeconfig was refused.
func (s *service) current(ctx context.Context, env module.Env) ([]byte, diag.List, error) {
	kept, err := s.admin(env.Cluster.Name)
	if err != nil {
		return nil, nil, err
	}
	st := pki.State(func(string) ([]byte, error) { return kept, nil }, op.CertificateFile{Path: "kubeconfig"})
	if st.Ends.IsZero() || s.Now().Before(st.Ends) {
		return kept, nil, nil
	}
	theirs, warnings, err := s.live(ctx, env)
	if err != nil { // the caller's request reports the expiry
		var list diag.List
		if errors.As(err, &list) && list[0].ID == clusterstate.IDUntrusted {
			warnings = asWarnings(list)
		}
		return kept, warnings, nil
	}
	return theirs, warnings, s.Store.SaveKubeconfig(env.Cluster.Name, theirs)
}

// live returns the admin kubeconfig of the first control plane that has a valid one.
// Warnings name the control planes before it whose kubeconfig was refused.
func (s *service) live(ctx context.Context, env module.Env) (conf []byte, warnings diag.List, err error) {
	recorded, err := s.Store.Kubeconfig(env.Cluster.Name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, nil, err
	}
	var refusals diag.List
	var failed error
	for _, h := range spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane) {
		one, err := s.liveOn(ctx, env, h, recorded)
		var list diag.List
		switch {
		case err == nil:
			return one, asWarnings(refusals), nil
		case errors.As(err, &list) && list[0].ID == clusterstate.IDUntrusted:
			refusals = append(refusals, list...)
		default:
			failed = errors.Join(failed, err)
		}
	}
	if failed == nil && len(refusals) > 0 {
		return nil, nil, refusals
	}
	return nil, asWarnings(refusals), failed
}

func asWarnings(list diag.List) diag.List {
	out := slices.Clone(list)
	for i := range out {
		out[i].Severity = diag.Warning
	}
	return out
}

func (s *service) liveOn(ctx context.Context, env module.Env, h v1alpha1.Host, recorded []byte) (_ []byte, err error) {
	conn, err := s.Connect(ctx, hostconn.WithSSH(env.Cluster, h), s.dialer().QueryOptions())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	results, err := conn.Check(ctx, op.List{op.ReadFile{Path: "/etc/kubernetes/admin.conf", Secret: true}})
	if err != nil {
		return nil, err
	}
	if results[0].Missing {
		return nil, fmt.Errorf("host %s has no admin kubeconfig: %w", h.Name, ErrNotFound)
	}
	conf, err := clusterstate.Outside(env, kubeconfig.Untrusted{Text: results[0].Output}, recorded)
	var list diag.List
	if errors.As(err, &list) {
		for i := range list {
			list[i].Host = h.Name
		}
	}
	return conf, err
}

// kubeconfigFile returns the path of an admin kubeconfig whose server responds now: the
// saved file, or a temporary one that done removes.
func (s *service) kubeconfigFile(ctx context.Context, env module.Env) (path string, done func(), warnings diag.List, err error) {
	name := env.Cluster.Name
	kept, warnings, err := s.current(ctx, env)
	if err != nil {
		return "", nil, nil, err
	}
	conf, err := s.through(ctx, env, kept)
	if err != nil {
		return "", nil, nil, err
	}
	if recorded, err := s.Store.Kubeconfig(name); err == nil && bytes.Equal(conf, recorded) {
		return s.Store.KubeconfigPath(name), func() {}, warnings, nil
	}
	path, err = s.Store.AnotherKubeconfig(name, conf)
	return path, func() { _ = os.Remove(path) }, warnings, err // otherwise the cluster's next lock removes it
}

// AddMerged saves that a cluster's kubeconfig was merged into a file.
func (s *service) AddMerged(name, path string) error { return s.Store.AddMerged(name, path) }

// Merged returns the files into which a cluster's kubeconfig was merged.
func (s *service) Merged(name string) ([]string, error) { return s.Store.Merged(name) }
