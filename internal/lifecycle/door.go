package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/record"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/spec"
)

// doorTime is how long the API is waited for at each of the addresses that
// may lead to it, all of which are asked at once.
const doorTime = 3 * time.Second

// outside is where the API of a cluster is reached from this machine; "" before
// its file is complete.
func outside(c *v1alpha1.Cluster) string {
	if doors := record.Doors(c); len(doors) > 0 {
		return doors[0]
	}
	return ""
}

// open is the first of the doors at which the API is ready to serve, "" if it
// is at none.
func (s *service) open(ctx context.Context, conf []byte, doors []string) string {
	ctx, cancel := context.WithTimeout(ctx, doorTime)
	var asked errgroup.Group
	defer func() {
		cancel()
		_ = asked.Wait() // each has said what it found
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

// through has a kubeconfig lead where the API answers now. It is as it was if
// there is one way alone, or none that answers: then whoever uses it is told.
func (s *service) through(ctx context.Context, env module.Env, conf []byte) ([]byte, error) {
	doors := record.Doors(env.Cluster)
	if len(doors) < 2 {
		return conf, nil
	}
	door := s.open(ctx, conf, doors)
	if door == "" {
		return conf, nil
	}
	return record.Through(env, conf, door)
}

// Kubeconfig answers the admin kubeconfig.
func (s *service) Kubeconfig(ctx context.Context, name string, live bool) ([]byte, error) {
	c, err := found(s.Store.Cluster(name))
	if err != nil {
		return nil, err
	}
	env, err := s.environment(ctx, c)
	if err != nil {
		return nil, err
	}
	kept := s.current
	if live {
		kept = s.live
	}
	conf, err := kept(ctx, env)
	if err != nil {
		return nil, err
	}
	return s.through(ctx, env, conf)
}

// admin is the recorded admin kubeconfig.
func (s *service) admin(name string) ([]byte, error) {
	if _, err := found(s.Store.Cluster(name)); err != nil {
		return nil, err
	}
	conf, err := found(s.Store.Kubeconfig(name))
	if errors.Is(err, ErrNotFound) {
		return nil, refused(idNoKubeconfig, "cluster "+name+" has no admin kubeconfig: its control plane has not come up yet", "go on with: slipway resume "+name)
	}
	return conf, err
}

// current is the recorded admin kubeconfig. When its time is over, hosts may have
// renewed theirs by themselves: then that of theirs is recorded.
func (s *service) current(ctx context.Context, env module.Env) ([]byte, error) {
	kept, err := s.admin(env.Cluster.Name)
	if err != nil {
		return nil, err
	}
	st := pki.State(func(string) ([]byte, error) { return kept, nil }, op.CertificateFile{Path: "kubeconfig"})
	if st.Ends.IsZero() || s.Now().Before(st.Ends) {
		return kept, nil
	}
	theirs, err := s.live(ctx, env)
	if err != nil {
		return kept, nil //nolint:nilerr // whoever uses it is told that it has expired
	}
	return theirs, s.Store.SaveKubeconfig(env.Cluster.Name, theirs)
}

// live is the admin kubeconfig of the first control plane that has one to give.
func (s *service) live(ctx context.Context, env module.Env) (conf []byte, err error) {
	for _, h := range spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane) {
		one, failed := s.liveOn(ctx, env, h)
		if failed == nil {
			return one, nil
		}
		err = errors.Join(err, failed)
	}
	return nil, err
}

func (s *service) liveOn(ctx context.Context, env module.Env, h v1alpha1.Host) (_ []byte, err error) {
	conn, err := s.Connect(ctx, merged(env.Cluster, h), s.looking())
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
	return record.Outside(env, results[0].Output)
}

// kubeconfigFile is a file with the admin kubeconfig by which the API answers
// now: the one on record, or one that done removes.
func (s *service) kubeconfigFile(ctx context.Context, env module.Env) (path string, done func(), err error) {
	name := env.Cluster.Name
	kept, err := s.current(ctx, env)
	if err != nil {
		return "", nil, err
	}
	conf, err := s.through(ctx, env, kept)
	if err != nil {
		return "", nil, err
	}
	if bytes.Equal(conf, kept) {
		return s.Store.KubeconfigPath(name), func() {}, nil
	}
	path, err = s.Store.AnotherKubeconfig(name, conf)
	return path, func() { _ = os.Remove(path) }, err // else the cluster's next lock sweeps it away
}
