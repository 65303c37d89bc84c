package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const (
	ipv4 = discoveryv1.AddressTypeIPv4
	ipv6 = discoveryv1.AddressTypeIPv6
)

// settle is the time, in a bubble of synctest, in which everything that an event
// causes is done: far less than until the next comparison without one.
const settle = 10 * time.Second

// sourceSlice returns a slice of the Service kubernetes.
func sourceSlice(name string, family discoveryv1.AddressType, port int32, addresses ...string) *discoveryv1.EndpointSlice {
	portName := "https"
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: &portName, Port: &port}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// notReady marks the slice's first endpoint.
func notReady(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	no := false
	s.Endpoints[0].Conditions.Ready = &no
	return s
}

// targetContents returns the content of the target's slices: name → addresses, ports and
// labels.
func targetContents(t *testing.T, client kubernetes.Interface) map[string][]string {
	t.Helper()
	list, err := client.DiscoveryV1().EndpointSlices("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, s := range list.Items {
		if s.Labels[discoveryv1.LabelServiceName] != "api" || s.Labels[discoveryv1.LabelManagedBy] != managedBy {
			t.Errorf("%s has labels %v", s.Name, s.Labels)
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || !*e.Conditions.Ready {
				t.Errorf("%s: %v is not ready", s.Name, e.Addresses)
			}
			out[s.Name] = append(out[s.Name], e.Addresses...)
		}
		for _, p := range s.Ports {
			out[s.Name] = append(out[s.Name], *p.Name, time.Duration(*p.Port).String())
		}
	}
	return out
}

// startInstance starts one; stop waits for its end and gives its error.
func startInstance(t *testing.T, client kubernetes.Interface, identity string) (stop func() error) {
	t.Helper()
	return startInstanceWith(t, client, identity, alwaysAnswers)
}

func startInstanceWith(t *testing.T, client kubernetes.Interface, identity string, ask func(context.Context,
	string) error,
) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, client, settings{namespace: "kube-system", service: "api", identity: identity, ask: ask}, slog.New(slog.DiscardHandler))
	}()
	return func() error {
		cancel()
		return <-done
	}
}

func slicesOf(client kubernetes.Interface, namespace string) slicesAPI {
	return client.DiscoveryV1().EndpointSlices(namespace)
}

// slicesAPI is the part of the API with which the tests change slices.
type slicesAPI interface {
	Create(context.Context, *discoveryv1.EndpointSlice, metav1.CreateOptions) (*discoveryv1.EndpointSlice, error)
	Update(context.Context, *discoveryv1.EndpointSlice, metav1.UpdateOptions) (*discoveryv1.EndpointSlice, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	Get(context.Context, string, metav1.GetOptions) (*discoveryv1.EndpointSlice, error)
}

func TestFollow_KeepsSlicesEqualToSource(t *testing.T) {
	type api struct{ source, target slicesAPI }
	update := func(t *testing.T, a slicesAPI, s *discoveryv1.EndpointSlice) {
		if _, err := a.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(t *testing.T, a slicesAPI, name string) {
		if err := a.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// change alters the target's slice, as another client of the API might.
	change := func(t *testing.T, a slicesAPI, with func(*discoveryv1.EndpointSlice)) {
		s, err := a.Get(t.Context(), "api-ipv4", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		with(s)
		update(t, a, s)
	}
	const port = "6.443µs" // 6443 as a duration in nanoseconds
	both := map[string][]string{"api-ipv4": {"10.0.0.1", "10.0.0.2", "https", port}}
	one := map[string][]string{"api-ipv4": {"10.0.0.1", "https", port}}
	first := sourceSlice("kubernetes", ipv4, 6443, "10.0.0.2", "10.0.0.1")
	tests := map[string]struct {
		reason string
		begin  []runtime.Object
		act    func(*testing.T, api)
		want   map[string][]string
	}{
		"add":   {"existing addresses are sorted", []runtime.Object{first}, nil, both},
		"later": {"the source may come after us", nil, func(t *testing.T, a api) { createSlice(t, a.source, first) }, both},
		"update": {
			"a control plane left",
			[]runtime.Object{first},
			func(t *testing.T, a api) { update(t, a.source, sourceSlice("kubernetes", ipv4, 6443, "10.0.0.1")) }, one,
		},
		"not ready": {
			"a terminating API server is not an endpoint",
			[]runtime.Object{first},
			func(t *testing.T, a api) { update(t, a.source, notReady(first.DeepCopy())) }, one,
		},
		"delete one": {
			"one slice of two is deleted",
			[]runtime.Object{sourceSlice("kubernetes", ipv4, 6443, "10.0.0.1"), sourceSlice("more", ipv4, 6443, "10.0.0.2")},
			func(t *testing.T, a api) { remove(t, a.source, "more") }, one,
		},
		"deleted": {
			"a missing source never empties the target",
			[]runtime.Object{first},
			func(t *testing.T, a api) { remove(t, a.source, "kubernetes") }, both,
		},
		"emptied": {
			"nor one without addresses",
			[]runtime.Object{first},
			func(t *testing.T, a api) { update(t, a.source, sourceSlice("kubernetes", ipv4, 6443)) }, both,
		},
		"none ready": {
			"nor one with none that is ready",
			[]runtime.Object{sourceSlice("kubernetes", ipv4, 6443, "10.0.0.1")},
			func(t *testing.T, a api) {
				update(t, a.source, notReady(sourceSlice("kubernetes", ipv4, 6443, "10.0.0.1")))
			}, one,
		},
		"dual stack": {
			"a slice for each family",
			[]runtime.Object{first, sourceSlice("six", ipv6, 6443, "fd00::2", "fd00::1")},
			nil,
			map[string][]string{"api-ipv4": both["api-ipv4"], "api-ipv6": {"fd00::1", "fd00::2", "https", port}},
		},
		"IPv6 alone": {
			"a cluster of one family",
			[]runtime.Object{sourceSlice("kubernetes", ipv6, 6443, "fd00::1")},
			nil,
			map[string][]string{"api-ipv6": {"fd00::1", "https", port}},
		},
		"other ports": {
			"a slice holds one set of ports: the first by name",
			[]runtime.Object{first, sourceSlice("zzz", ipv4, 7443, "10.0.0.9")},
			nil, both,
		},
		"target deleted": {
			"it is created again",
			[]runtime.Object{first},
			func(t *testing.T, a api) { remove(t, a.target, "api-ipv4") }, both,
		},
		"target emptied": {"it is restored", []runtime.Object{first}, func(t *testing.T, a api) {
			change(t, a.target, func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
		}, both},
		"target redirected": {"it is restored", []runtime.Object{first}, func(t *testing.T, a api) {
			change(t, a.target, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"192.0.2.1"} })
		}, both},
		"label removed": {"the watch no longer has it", []runtime.Object{first}, func(t *testing.T, a api) {
			change(t, a.target, func(s *discoveryv1.EndpointSlice) { s.Labels = nil })
			// The fake's watch ignores selectors. The real watch reports a deletion here,
			// so the test sends another event instead.
			update(t, a.source, sourceSlice("kubernetes", ipv4, 6443, "10.0.0.1"))
		}, one},
		"another family in its place": {"a family cannot be changed: the slice is recreated", []runtime.Object{first}, func(t *testing.T, a api) {
			// Another client deletes the slice and creates it again. This is one step here, because the
			// follower could create it in between.
			s := sourceSlice("api-ipv4", ipv6, 6443, "fd00::9")
			s.Namespace = "kube-system"
			update(t, a.target, s)
		}, both},
		"another service": {"its slices are ignored", []runtime.Object{first}, func(t *testing.T, a api) {
			s := sourceSlice("other", ipv4, 6443, "10.9.9.9")
			s.Labels[discoveryv1.LabelServiceName] = "other"
			createSlice(t, a.source, s)
		}, both},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var begin []runtime.Object
				for _, o := range tt.begin {
					begin = append(begin, o.DeepCopyObject())
				}
				client := fake.NewClientset(begin...)
				stop := startInstance(t, client, "a")
				time.Sleep(settle)
				if tt.act != nil {
					tt.act(t, api{slicesOf(client, "default"), slicesOf(client, "kube-system")})
					time.Sleep(settle)
				}
				if diff := cmp.Diff(tt.want, targetContents(t, client)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
				}
				if err := stop(); err != nil {
					t.Errorf("stopping: %v", err)
				}
			})
		})
	}
}

func createSlice(t *testing.T, a slicesAPI, s *discoveryv1.EndpointSlice) {
	t.Helper()
	if _, err := a.Create(t.Context(), s.DeepCopy(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestFollow_WritesNothingIfUnchanged: events that change nothing cost no write.
func TestFollow_WritesNothingIfUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(sourceSlice("kubernetes", ipv4, 6443, "10.0.0.1"))
		stop := startInstance(t, client, "a")
		time.Sleep(settle)
		if len(targetContents(t, client)) != 1 {
			t.Error("the slice was not created")
		}
		client.ClearActions() // the watch reports the new slice late, so there may be a second create
		time.Sleep(2*resync + settle)
		writes := 0
		for _, a := range client.Actions() {
			if a.GetResource().Resource == "endpointslices" && (a.GetVerb() == "create" || a.GetVerb() == "update" || a.GetVerb() == "delete") {
				writes++
			}
		}
		if writes != 0 {
			t.Errorf("%d writes without a change", writes)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestFollow_RetriesAfterFailureWithoutEvent: an API server that fails is asked again, without an event.
func TestFollow_RetriesAfterFailureWithoutEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(sourceSlice("kubernetes", ipv4, 6443, "10.0.0.1"))
		failures := 5
		client.PrependReactor("create", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, errors.New("the API server has no leader")
		})
		stop := startInstance(t, client, "a")
		time.Sleep(settle)
		if diff := cmp.Diff([]string{"10.0.0.1", "https", "6.443µs"}, targetContents(t, client)["api-ipv4"]); diff != "" {
			t.Errorf("after failures (-want +got):\n%s", diff)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
