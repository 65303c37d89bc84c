package etcdbackup

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
	"slipway.dev/slipway/internal/spec/hostroles"
)

// A Source is the view that the module has of a backup set.
type Source struct {
	// Key identifies the restore. The manager provides the Snapshot.
	Key      string
	Snapshot op.Blob
	// Revision is the revision of the snapshot. Before is how many times the data of a
	// cluster with this name was replaced earlier.
	Revision int64
	Before   int
	// Files holds the files of hosts, by path.
	Files map[string][]byte
	// Unverified means that the author of the set is unknown: hosts receive none of its
	// files.
	Unverified bool
	// Kubeconfig is the kubeconfig of the administrator.
	Kubeconfig []byte
	// Rescue, if not nil, uses the data of a surviving member instead of a set.
	Rescue *Rescue
}

// restoredMembers returns the hosts that have an etcd member afterwards.
func (s Source) restoredMembers(env module.Env) []v1alpha1.Host {
	all := env.EtcdMembers(env.Cluster)
	if s.Rescue == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(h v1alpha1.Host) bool { return h.Name != s.Rescue.Member })
}

// keepsMember selects these hosts.
func (s Source) keepsMember(env module.Env) func(*engine.Host) bool {
	return func(h *engine.Host) bool {
		return slices.ContainsFunc(s.restoredMembers(env), func(m v1alpha1.Host) bool { return m.Name == h.Name })
	}
}

// maxDoubled bounds bump, far below the maximum revision.
const maxDoubled = 30

// revisionBump returns by how much the revision is raised above the revision of the
// snapshot. The revision must become higher than it ever was, also after earlier
// restores of the same or an older snapshot. Otherwise clients would continue with
// cached data. Doubling it each time makes it larger than all earlier bumps together.
func (s Source) revisionBump() int64 { return op.FirstBump << min(s.Before, maxDoubled) }

const (
	kubelet = "kubelet.service"
	etcd    = "etcd.service"
)

// StepSwap is the step that replaces the data of etcd members, in a restore and in a
// rescue. After StepReached all members have the new data and serve it.
const (
	StepSwap    = "restore.swap"
	StepReached = "restore.reached"
)

// readyTime is the timeout for components that were restarted.
const readyTime = 10 * time.Minute

// podCgroups returns the cgroups of pods.
func podCgroups() []string {
	return []string{"kubepods.slice", "kubepods", "system.slice/containerd.service", "system.slice/kubelet.service"}
}

// cachingPrograms returns programs in pods on every node that cache data of the API.
func cachingPrograms() []string { return []string{"kube-proxy", "flanneld", "coredns"} }

// MarkPaths returns the files of the set that hosts may have lost; facts are collected for
// them. Hosts receive no other file of a set, and no file at all of an unverified set.
func (s Source) MarkPaths(c *v1alpha1.Cluster) []string {
	if s.Unverified {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(slices.Values(backupSetFiles(c))), func(p string) bool { return s.Files[p] == nil })
}

// RestoreData is the module that gives etcd members the data of a snapshot, and restarts
// everything that caches data of the API. Nothing is lost before its second step has
// ended. From the third step on, only the data that was moved aside allows a rollback.
func RestoreData(env module.Env, src Source) engine.Module {
	nodes := func(h *engine.Host) bool { return module.IsNode(h) }
	stops := func(h *engine.Host) bool { return isMember(env)(h) || h.HasRole(v1alpha1.RoleControlPlane) }
	keys := encryptionTasks(src)
	return engine.Module{Name: "backup", Tasks: []engine.Task{
		keys[0],
		restoreTask("prepare", "create etcd data from snapshot", isMember(env),
			func(h *engine.Host) op.List { return op.List{prepareData(env, src, h)} }),
		restoreTask("stop", "stop etcd and control planes", stops, func(h *engine.Host) op.List {
			return op.List{stopHost(env, src, h, op.RestoreStop)}
		}, "restore.prepare"),
		restoreTask("swap", "replace etcd data", isMember(env), func(h *engine.Host) op.List {
			o := stopHost(env, src, h, op.RestoreSwap)
			o.Data, o.Snapshot = facts.DirEtcd, src.Snapshot
			return op.List{o}
		}, "restore.stop"),
		restoreTask("keys", "restore lost keys", stops, func(h *engine.Host) op.List { return lostKeys(env, src, h) }, StepSwap),
		keys[1],
		restoreTask("start", "start etcd", isMember(env), func(h *engine.Host) op.List {
			return startMember(env, src)
		}, "restore.keys", "restore.encryption"),
		restoreTask("etcd", "wait for etcd", isMember(env), func(*engine.Host) op.List { return op.List{etcdServes(env)} }, "restore.start"),
		restartKubeletsTask(src, nodes),
		waitServersTask(env, nodes),
		verifyRevisionTask(env, src),
		waitNodesTask(env, nodes),
	}}
}

// restoreTask returns a task on some hosts.
func restoreTask(id, title string, on func(*engine.Host) bool, ops func(*engine.Host) op.List, needs ...string) engine.Task {
	return engine.Task{
		ID: "restore." + id, Title: title, On: on, Needs: needs, Timeout: 20 * time.Minute,
		Ops: func(s *engine.Scope) (op.List, error) { return ops(s.Host()), nil },
	}
}

func startMember(env module.Env, src Source) op.List {
	return op.List{op.EtcdRestore{Do: op.RestoreStart, Key: src.Key, Units: []string{memberUnit(env)}}, module.MarkEtcdJoined()}
}

// memberUnit returns the unit that starts an etcd member.
func memberUnit(env module.Env) string {
	if env.HasStackedEtcd() {
		return kubelet
	}
	return etcd
}

// prepareData creates the data of the etcd member of a host.
func prepareData(env module.Env, src Source, h *engine.Host) op.EtcdRestore {
	var all []string
	for _, m := range src.restoredMembers(env) {
		all = append(all, m.Name+"="+module.EtcdURL(m, hostroles.EtcdPeerPort))
	}
	slices.Sort(all)
	return op.EtcdRestore{
		Do: op.RestorePrepare, Key: src.Key, Snapshot: src.Snapshot, Utility: module.Etcdutl, Data: facts.DirEtcd,
		Bump: uint64(src.revisionBump()),
		Name: h.Name, PeerURL: module.EtcdURL(h.Host, hostroles.EtcdPeerPort), Cluster: strings.Join(all, ","),
	}
}

// stopHost stops everything on a host that has the old data.
func stopHost(env module.Env, src Source, h *engine.Host, do op.RestoreStep) op.EtcdRestore {
	o := op.EtcdRestore{Do: do, Key: src.Key, Cgroups: podCgroups()}
	if env.RunsEtcd(h) {
		o.Units = append(o.Units, etcd)
	}
	if h.HasRole(v1alpha1.RoleControlPlane) {
		o.Units = append(o.Units, kubelet)
		o.Programs = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
		if env.HasStackedEtcd() {
			o.Programs = append(o.Programs, "etcd")
		}
	}
	return o
}

// lostKeys returns the files of the set that the host has lost. Existing files are not
// changed.
func lostKeys(env module.Env, src Source, h *engine.Host) (list op.List) {
	for _, p := range src.MarkPaths(env.Cluster) {
		etcds, private := strings.HasPrefix(p, module.EtcdPKI+"/"), !slices.Contains([]string{".crt", ".pub"}, path.Ext(p))
		switch {
		case h.Facts == nil, slices.Contains(h.Facts.Present, p):
		case !etcds && !h.HasRole(v1alpha1.RoleControlPlane):
		case etcds && private && !isMember(env)(h): // the manager signs for control planes without a member; they do not receive this key
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
	w := env.WaitLocalMember("health")
	w.TimeoutSeconds = 300
	return *w
}

// restartKubeletsTask restarts kubelets and programs that cache data of the API, on all
// nodes. A kubelet that runs etcd in a pod was started earlier.
func restartKubeletsTask(src Source, on func(*engine.Host) bool) engine.Task {
	return engine.Task{
		ID: "restore.kubelets", Title: "restart kubelets and network pods", On: on, Needs: []string{"restore.etcd"}, Timeout: 5 * time.Minute,
		Provides: []engine.KeyRef{module.KeyKubeletStarted.Ref()},
		Ops: func(*engine.Scope) (op.List, error) {
			o := op.EtcdRestore{Do: op.RestoreRefresh, Key: src.Key, Units: []string{kubelet}, Programs: cachingPrograms(), Cgroups: podCgroups()}
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
			engine.ProvideValue(s, module.KeyKubeletStarted, &at)
			return nil
		},
	}
}

// waitServersTask waits for every API server.
func waitServersTask(env module.Env, on func(*engine.Host) bool) engine.Task {
	return engine.Task{
		ID: "restore.serving", Title: "wait for API server", Needs: []string{"restore.kubelets"}, Timeout: readyTime,
		On: func(h *engine.Host) bool { return on(h) && h.HasRole(v1alpha1.RoleControlPlane) },
		Ops: func(*engine.Scope) (op.List, error) {
			return op.List{op.Wait{
				HTTP:           fmt.Sprintf("https://127.0.0.1:%d/readyz", env.Cluster.Spec.ControlPlaneEndpoint.Port),
				TimeoutSeconds: 480,
			}}, nil
		},
	}
}

// verifyRevisionTask verifies that the API serves the restored data.
func verifyRevisionTask(env module.Env, src Source) engine.Task {
	return engine.Task{
		ID: StepReached, Title: "verify restored revision", On: env.IsFirst, Needs: []string{"restore.serving"}, Timeout: readyTime,
		Provides: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(context.Context, *engine.Scope) ([]plan.OpChange, error) {
				return []plan.OpChange{{
					Kind: "api", Target: env.APIEndpoint(),
					Summary: fmt.Sprintf("serves revision %d or later", src.Revision+src.revisionBump()),
				}}, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				client, err := kube.New(src.Kubeconfig, s.Host().Conn.DialContext,
					kube.Options{Address: fmt.Sprintf("127.0.0.1:%d", env.Cluster.Spec.ControlPlaneEndpoint.Port)})
				if err != nil {
					return err
				}
				revision, err := client.APIServer().GetEtcdRevision(ctx)
				if err != nil {
					return err
				}
				if revision < src.Revision+src.revisionBump() {
					return fmt.Errorf("the API serves revision %d, but the restored data begins at %d: "+
						"the API does not have the restored data", revision, src.Revision+src.revisionBump())
				}
				engine.ProvideValue(s, module.KeyKube, client)
				return nil
			},
		},
	}
}

// waitNodesTask waits for the nodes of the hosts that take part.
func waitNodesTask(env module.Env, on func(*engine.Host) bool) engine.Task {
	return engine.Task{
		ID: "restore.ready", Title: "wait until node is ready", On: on, Timeout: readyTime,
		Consumes: []engine.KeyRef{module.KeyKube.Ref(), module.KeyKubeletStarted.Ref()},
		When:     func(*engine.Scope) bool { return env.Cluster.Spec.Network.Plugin != "none" },
		Run: &engine.Action{
			Check: func(_ context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				return []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: "wait until it is ready"}}, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				return engine.GetValue(s, module.KeyKube).Nodes().WaitReady(ctx, s.Host().Name,
					*engine.GetValue(s, module.KeyKubeletStarted), func(m string) { s.ShowProgress("%s", m) })
			},
		},
	}
}
