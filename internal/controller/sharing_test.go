package controller

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/sharding"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/operator/manifests"
)

// A shared process is one of several that share the clusters of a world.
type sharedProcess struct {
	identity string
	traffic  *traffic
	stop     func()
}

// startShared starts processes that share clusters. The first one owns the cluster of the world, and the next one owns it
// after the end of the first one.
func (w *world) startShared(identities ...string) (processes []*sharedProcess) {
	w.t.Helper()
	w.grantNamespacedRights()
	for left := slices.Clone(identities); len(left) > 0; {
		owner := sharding.Owner(left, types.NamespacedName{Namespace: w.namespace, Name: "prod"})
		left = slices.DeleteFunc(left, func(name string) bool { return name == owner })
		w.sharing = &Sharing{Namespace: w.namespace, Group: "controllers", Identity: owner}
		w.start()
		processes = append(processes, &sharedProcess{owner, w.traffic, w.stop})
	}
	w.waitForMembers(len(identities))
	return processes
}

// grantNamespacedRights gives the operator the rights that it has in its own namespace.
func (w *world) grantNamespacedRights() {
	w.t.Helper()
	api := server.Client(w.t).RbacV1()
	if _, err := api.Roles(w.namespace).Create(w.t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: manifests.Name}, Rules: manifests.ListNamespacedRules(),
	}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := api.RoleBindings(w.namespace).Create(w.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: manifests.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: manifests.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: operatorUser}},
	}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// TestSharing_OtherProcessContinues ends the process that runs an operation, in three ways. The next process ends the
// operation, and no step of kubeadm runs twice.
func TestSharing_OtherProcessContinues(t *testing.T) {
	for name, end := range map[string]func(p *sharedProcess, release func()){
		"stopped": func(p *sharedProcess, release func()) {
			stopped := make(chan struct{})
			go func() { // ends with the process
				defer close(stopped)
				p.stop()
			}()
			release()
			<-stopped
		},
		"killed": func(p *sharedProcess, release func()) {
			p.traffic.cut.Store(true)
			release() // the paused process comes back
		},
	} {
		otherProcessContinues(t, name, prepareWorld, end)
		otherProcessContinues(t, name+", with faults of the API", prepareFaultyWorld, end)
	}
}

func otherProcessContinues(
	t *testing.T, name string, prepare func(t *testing.T, names ...string) *world, end func(p *sharedProcess, release func()),
) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		w := prepare(t, "cp1", "w1")
		processes := w.startShared("a", "b", "c")
		wait, release := w.hold("w1 join.")
		w.createKey()
		w.create(w.object("cp1", "w1"))
		wait()
		inits := w.gate.count("cp1 kubeadm.config")
		end(processes[0], release)
		w.waitForApplied()
		o := w.latest(operation.Create)
		if o.Status.Attempt != 2 || o.Status.State != v1alpha1.OperationSucceeded {
			t.Errorf("attempt %d of operation that %s", o.Status.Attempt, o.Status.State)
		}
		if again := w.gate.count("cp1 kubeadm.config"); inits == 0 || again != inits {
			t.Errorf("%d changes by steps of init, then %d", inits, again)
		}
		w.requireStates("create Succeeded")
		if n := countWrites(processes[2]); n > 0 {
			t.Errorf("%d writes by a process that does not have the cluster", n)
		}
	})
}

// countWrites returns the number of writes of a process.
func countWrites(p *sharedProcess) (n int) {
	for _, request := range p.traffic.requests() {
		if request[:4] != "GET " {
			n++
		}
	}
	return n
}

// TestSharing_JoiningProcessDoesNotRepeat starts a process to which the cluster belongs then, while another one runs an
// operation. The operation ends where it runs, in one attempt. The next one runs in the new process.
func TestSharing_JoiningProcessDoesNotRepeat(t *testing.T) {
	t.Parallel()
	w := prepareWorld(t, "cp1", "w1")
	names := []string{"a", "b"}
	owner := sharding.Owner(names, types.NamespacedName{Namespace: w.namespace, Name: "prod"})
	other := names[(slices.Index(names, owner)+1)%2]
	first := w.startShared(other)[0]
	wait, release := w.hold("w1 join.")
	w.createKey()
	w.create(w.object("cp1", "w1"))
	wait()
	before := len(first.traffic.requests())
	w.sharing = &Sharing{Namespace: w.namespace, Group: "controllers", Identity: owner}
	w.start()
	second := w.traffic
	w.eventually(func() string { // it sees the operation of the other process
		if !slices.ContainsFunc(second.requests(), func(r string) bool {
			return r == "GET /apis/slipway.dev/v1alpha1/namespaces/"+w.namespace+"/operations/"+w.latest(operation.Create).Name
		}) {
			return "the new process does not have the cluster yet"
		}
		return ""
	})
	release()
	w.waitForApplied()
	if o := w.latest(operation.Create); o.Status.Attempt != 1 || o.Status.State != v1alpha1.OperationSucceeded {
		t.Errorf("attempt %d of operation that %s", o.Status.Attempt, o.Status.State)
	}
	if len(first.traffic.requests()) == before {
		t.Error("the first process has not continued")
	}
	w.setHosts("cp1")
	o := w.waitForState(operation.Apply, v1alpha1.OperationAwaitingApproval)
	if err := w.approve(o, o.Status.Plan.Digest); err != nil {
		t.Fatal(err)
	}
	w.waitForApplied()
	w.requireStates("create Succeeded", "apply Succeeded")
	if n := countWrites(&sharedProcess{traffic: second}); n == 0 {
		t.Error("the new process has written nothing")
	}
}
