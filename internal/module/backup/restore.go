package backup

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
)

// A Source is a backup set, as the module sees it.
type Source struct {
	// Key names the restore; Snapshot is to be had from the manager.
	Key      string
	Snapshot op.Blob
	// Revision is the snapshot's, and Before how many times a cluster of this name was
	// given other data before.
	Revision int64
	Before   int
	// Files are those of hosts, by their paths.
	Files map[string][]byte
	// Unverified is that nobody knows who wrote the set: of its files hosts get none.
	Unverified bool
	// Kubeconfig is the administrator's.
	Kubeconfig []byte
	// Rescue is instead of a set: what a member has that is left over.
	Rescue *Rescue
}

// members are the hosts that have a member afterwards.
func (s Source) members(env module.Env) []v1alpha1.Host {
	all := env.Members(env.Cluster)
	if s.Rescue == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(h v1alpha1.Host) bool { return h.Name != s.Rescue.Member })
}

// keeps selects them.
func (s Source) keeps(env module.Env) func(*engine.Host) bool {
	return func(h *engine.Host) bool {
		return slices.ContainsFunc(s.members(env), func(m v1alpha1.Host) bool { return m.Name == h.Name })
	}
}

// maxDoubled bounds how far it goes, far below what a revision can be.
const maxDoubled = 30

// bump is how far the revision goes beyond the snapshot's. One that was restored before
// has come that far already, and it must come further than it ever was: a snapshot of
// before that, or the same one once more, would else have clients go by what they
// remember. With each time twice as far is further than all times before together.
func (s Source) bump() int64 { return op.FirstBump << min(s.Before, maxDoubled) }

const (
	kubelet = "kubelet.service"
	etcd    = "etcd.service"
)

// StepSwap is the step with which members of etcd come to have other data, of a set
// as of a rescue; with StepReached all of them have it, and serve it.
const (
	StepSwap    = "restore.swap"
	StepReached = "restore.reached"
)

// readyTime bounds the wait for what is started anew.
const readyTime = 10 * time.Minute

// podCgroups are those that pods are in.
func podCgroups() []string {
	return []string{"kubepods.slice", "kubepods", "system.slice/containerd.service", "system.slice/kubelet.service"}
}

// caching are programs in pods on every node that keep what the API has told
// them.
func caching() []string { return []string{"kube-proxy", "flanneld", "coredns"} }

// Marks are the files of the set that hosts may have lost; facts are asked for
// them. Nothing else of a set goes to hosts, whatever is in it, and nothing at all of a
// set that is not verified.
func (s Source) Marks(c *v1alpha1.Cluster) []string {
	if s.Unverified {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(slices.Values(ofSets(c))), func(p string) bool { return s.Files[p] == nil })
}

// Restore is the module that gives the members of etcd the data of a snapshot, and
// restarts all that keeps what the API has told: until its second step ends
// nothing is lost, and from its third on there is no way back but to the data
// that were moved aside.
func Restore(env module.Env, src Source) engine.Module {
	nodes := func(h *engine.Host) bool { return module.IsNode(h) }
	stops := func(h *engine.Host) bool { return isMember(env)(h) || h.HasRole(v1alpha1.RoleControlPlane) }
	keys := encryption(src)
	return engine.Module{Name: "backup", Tasks: []engine.Task{
		keys[0],
		step("prepare", "make the data from the snapshot", isMember(env), func(h *engine.Host) op.List { return op.List{prepared(env, src, h)} }),
		step("stop", "stop etcd and control planes", stops, func(h *engine.Host) op.List {
			return op.List{stopping(env, src, h, op.RestoreStop)}
		}, "restore.prepare"),
		step("swap", "put the data in their place", isMember(env), func(h *engine.Host) op.List {
			o := stopping(env, src, h, op.RestoreSwap)
			o.Data, o.Snapshot = facts.DirEtcd, src.Snapshot
			return op.List{o}
		}, "restore.stop"),
		step("keys", "put lost keys back", stops, func(h *engine.Host) op.List { return lostKeys(env, src, h) }, StepSwap),
		keys[1],
		step("start", "start etcd", isMember(env), func(h *engine.Host) op.List {
			return starting(env, src)
		}, "restore.keys", "restore.encryption"),
		step("etcd", "wait for etcd", isMember(env), func(*engine.Host) op.List { return op.List{etcdServes(env)} }, "restore.start"),
		kubelets(src, nodes),
		serving(env, nodes),
		reached(env, src),
		ready(env, nodes),
	}}
}

// step is a part on some hosts.
func step(id, title string, on func(*engine.Host) bool, ops func(*engine.Host) op.List, needs ...string) engine.Task {
	return engine.Task{
		ID: "restore." + id, Title: title, On: on, Needs: needs, Timeout: 20 * time.Minute,
		Ops: func(s *engine.Scope) (op.List, error) { return ops(s.Host()), nil },
	}
}

func starting(env module.Env, src Source) op.List {
	return op.List{op.EtcdRestore{Do: op.RestoreStart, Key: src.Key, Units: []string{memberUnit(env)}}, module.EtcdMark()}
}

// memberUnit is what starts a member of etcd.
func memberUnit(env module.Env) string {
	if env.Stacked() {
		return kubelet
	}
	return etcd
}

// prepared are the data of a host's member.
func prepared(env module.Env, src Source, h *engine.Host) op.EtcdRestore {
	var all []string
	for _, m := range src.members(env) {
		all = append(all, m.Name+"="+module.EtcdURL(m, facts.EtcdPeerPort))
	}
	slices.Sort(all)
	return op.EtcdRestore{
		Do: op.RestorePrepare, Key: src.Key, Snapshot: src.Snapshot, Utility: module.Etcdutl, Data: facts.DirEtcd, Bump: uint64(src.bump()),
		Name: h.Name, PeerURL: module.EtcdURL(h.Host, facts.EtcdPeerPort), Cluster: strings.Join(all, ","),
	}
}

// stopping is what a host ends that has the old data.
func stopping(env module.Env, src Source, h *engine.Host, do op.RestoreStep) op.EtcdRestore {
	o := op.EtcdRestore{Do: do, Key: src.Key, Cgroups: podCgroups()}
	if env.RunsEtcd(h) {
		o.Units = append(o.Units, etcd)
	}
	if h.HasRole(v1alpha1.RoleControlPlane) {
		o.Units = append(o.Units, kubelet)
		o.Programs = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
		if env.Stacked() {
			o.Programs = append(o.Programs, "etcd")
		}
	}
	return o
}

// lostKeys are the files of the set that the host has not any more. What it has
// is its own.
func lostKeys(env module.Env, src Source, h *engine.Host) (list op.List) {
	for _, p := range src.Marks(env.Cluster) {
		etcds, private := strings.HasPrefix(p, module.EtcdPKI+"/"), !slices.Contains([]string{".crt", ".pub"}, path.Ext(p))
		switch {
		case h.Facts == nil, slices.Contains(h.Facts.Present, p):
		case !etcds && !h.HasRole(v1alpha1.RoleControlPlane):
		case etcds && private && !isMember(env)(h): // control planes are signed for, and do not get it
		default:
			f := op.File{Path: p, Content: src.Files[p]}
			if private {
				f.Mode, f.Secret = 0o600, true
			}
			list = append(list, f)
		}
	}
	return list
}

func etcdServes(env module.Env) op.Wait {
	w := env.AskMember("health")
	w.TimeoutSeconds = 300
	return *w
}

// kubelets restarts kubelets and what keeps what it was told, on all nodes. Who
// runs etcd in pods has started its own before.
func kubelets(src Source, on func(*engine.Host) bool) engine.Task {
	return engine.Task{
		ID: "restore.kubelets", Title: "restart kubelets and the network's pods", On: on, Needs: []string{"restore.etcd"}, Timeout: 5 * time.Minute,
		Provides: []engine.KeyRef{module.KeyKubeletStarted.Ref()},
		Ops: func(*engine.Scope) (op.List, error) {
			o := op.EtcdRestore{Do: op.RestoreRefresh, Key: src.Key, Units: []string{kubelet}, Programs: caching(), Cgroups: podCgroups()}
			return op.List{o, op.UnitStarted{Name: kubelet}}, nil
		},
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			var at time.Time
			if len(results) > 1 && !results[1].Missing {
				var err error
				if at, err = time.Parse(time.RFC3339Nano, string(results[1].Output)); err != nil {
					return fmt.Errorf("reading when the kubelet was started: %w", err)
				}
			}
			engine.Provide(s, module.KeyKubeletStarted, &at)
			return nil
		},
	}
}

// serving waits for every API server.
func serving(env module.Env, on func(*engine.Host) bool) engine.Task {
	return engine.Task{
		ID: "restore.serving", Title: "wait for the API server", Needs: []string{"restore.kubelets"}, Timeout: readyTime,
		On: func(h *engine.Host) bool { return on(h) && h.HasRole(v1alpha1.RoleControlPlane) },
		Ops: func(*engine.Scope) (op.List, error) {
			return op.List{op.Wait{HTTP: fmt.Sprintf("https://127.0.0.1:%d/readyz", env.Cluster.Spec.ControlPlaneEndpoint.Port), TimeoutSeconds: 480}}, nil
		},
	}
}

// reached asks the API what it serves: what was restored, and nothing else.
func reached(env module.Env, src Source) engine.Task {
	return engine.Task{
		ID: StepReached, Title: "ask the API for the restored revision", On: env.IsFirst, Needs: []string{"restore.serving"}, Timeout: readyTime,
		Provides: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(context.Context, *engine.Scope) ([]plan.OpChange, error) {
				return []plan.OpChange{{Kind: "api", Target: env.Endpoint(), Summary: fmt.Sprintf("serves revision %d or later", src.Revision+src.bump())}}, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				client, err := kube.New(src.Kubeconfig, s.Host().Conn.DialContext, kube.Options{Address: fmt.Sprintf("127.0.0.1:%d", env.Cluster.Spec.ControlPlaneEndpoint.Port)})
				if err != nil {
					return err
				}
				revision, err := client.Revision(ctx)
				if err != nil {
					return err
				}
				if revision < src.Revision+src.bump() {
					return fmt.Errorf("the API serves revision %d, and the restored data begin at %d: it has other data", revision, src.Revision+src.bump())
				}
				engine.Provide(s, module.KeyKube, client)
				return nil
			},
		},
	}
}

// ready waits for the nodes of the hosts that take part.
func ready(env module.Env, on func(*engine.Host) bool) engine.Task {
	return engine.Task{
		ID: "restore.ready", Title: "wait until the node is ready", On: on, Timeout: readyTime,
		Consumes: []engine.KeyRef{module.KeyKube.Ref(), module.KeyKubeletStarted.Ref()},
		When:     func(*engine.Scope) bool { return env.Cluster.Spec.Network.Plugin != "none" },
		Run: &engine.Action{
			Check: func(_ context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				return []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: "wait until it is ready"}}, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				return engine.Get(s, module.KeyKube).WaitNodeReady(ctx, s.Host().Name, *engine.Get(s, module.KeyKubeletStarted), func(m string) { s.Tell("%s", m) })
			},
		},
	}
}
