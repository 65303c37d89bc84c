package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	// managedBy marks the slices as managed by this program. Kubernetes' own controllers
	// then do not change them.
	managedBy = "apiserver-updater.slipway.dev"
	// sourceNamespace and sourceService name the Service in which API servers register,
	// and from which they are removed when they stop.
	sourceNamespace = "default"
	sourceService   = "kubernetes"
	// resync is how often everything is compared without an event.
	resync = 5 * time.Minute
)

// addressFamilies returns the address types that are followed. Each has a separate slice.
func addressFamilies() []discoveryv1.AddressType {
	return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
}

// sliceName returns the name of the slice of a family. The RBAC roles contain the same
// name.
func sliceName(service string, family discoveryv1.AddressType) string {
	return service + "-" + strings.ToLower(string(family))
}

// A follower keeps the slices of a Service equal to the slices of the Service kubernetes.
type follower struct {
	client kubernetes.Interface
	settings
	log *slog.Logger

	source, target discoverylisters.EndpointSliceNamespaceLister
	prober         prober
}

// followEndpoints works until ctx is done. Each event in the source slices or the target
// slices starts a full comparison. After a failure it retries with increasing delays.
func (f *follower) followEndpoints(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	source, err := f.watchSlices(sourceNamespace, sourceService, queue)
	if err != nil {
		return err
	}
	target, err := f.watchSlices(f.namespace, f.service, queue)
	if err != nil {
		return err
	}
	for _, factory := range []informers.SharedInformerFactory{source, target} {
		factory.Start(ctx.Done())
		defer factory.Shutdown()
	}
	f.source = source.Discovery().V1().EndpointSlices().Lister().EndpointSlices(sourceNamespace)
	f.target = target.Discovery().V1().EndpointSlices().Lister().EndpointSlices(f.namespace)
	for _, factory := range []informers.SharedInformerFactory{source, target} {
		for _, synced := range factory.WaitForCacheSync(ctx.Done()) {
			if !synced {
				return nil // ctx is done
			}
		}
	}
	defer context.AfterFunc(ctx, queue.ShutDown)()
	f.probeServers(ctx)
	queue.Add(f.service)
	var probing sync.WaitGroup
	defer probing.Wait()
	probing.Go(func() {
		wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
			if f.probeServers(ctx) {
				queue.Add(f.service)
			}
		}, probeEvery)
	})
	for {
		key, shut := queue.Get()
		if shut {
			return nil
		}
		if err := f.syncSlices(ctx); err != nil && ctx.Err() == nil {
			f.log.Warn("trying again", "error", err)
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

// probeServers probes all registered API servers; see prober.probeAll.
func (f *follower) probeServers(ctx context.Context) bool {
	source, err := f.source.List(serviceSelector(sourceService))
	if err != nil {
		f.log.Warn("listing what to ask", "error", err)
		return false
	}
	var servers []string
	for _, family := range addressFamilies() {
		endpoints, ports := mergeEndpoints(source, family)
		for _, e := range endpoints {
			servers = append(servers, serverAddress(e, ports))
		}
	}
	return f.prober.probeAll(ctx, f.ask, servers)
}

// serverAddress returns the address of an API server, as "host:port".
func serverAddress(e discoveryv1.Endpoint, ports []discoveryv1.EndpointPort) string {
	return net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*ports[0].Port)))
}

// watchSlices watches the slices of a Service; any event queues the target.
func (f *follower) watchSlices(namespace, service string, queue workqueue.TypedInterface[string]) (informers.SharedInformerFactory, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(f.client, resync,
		informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = serviceSelector(service).String() }))
	kick := func(any) { queue.Add(f.service) }
	_, err := factory.Discovery().V1().EndpointSlices().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: kick, UpdateFunc: func(_, now any) { kick(now) }, DeleteFunc: kick,
	})
	if err != nil {
		return nil, fmt.Errorf("watching the endpoints of %s/%s: %w", namespace, service, err)
	}
	return factory, nil
}

func serviceSelector(service string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service})
}

// syncSlices compares the slices of both families and corrects differences.
func (f *follower) syncSlices(ctx context.Context) error {
	source, err := f.source.List(serviceSelector(sourceService))
	if err != nil {
		return fmt.Errorf("listing the endpoints of %s: %w", sourceService, err)
	}
	var errs []error
	for _, family := range addressFamilies() {
		endpoints, ports := mergeEndpoints(source, family)
		if len(endpoints) == 0 {
			// The source has no address of this family. The last known addresses may
			// still work, and an empty slice cannot.
			continue
		}
		answering := slices.DeleteFunc(slices.Clone(endpoints),
			func(e discoveryv1.Endpoint) bool { return !f.prober.isAnswering(serverAddress(e, ports)) })
		if len(answering) > 0 { // if no server responds, keep all of them
			endpoints = answering
		}
		want := f.newSlice(family, endpoints, ports)
		if err := f.putSlice(ctx, want); err != nil {
			errs = append(errs, fmt.Errorf("putting %s: %w", want.Name, err))
		}
	}
	return errors.Join(errs...)
}

// mergeEndpoints returns the ready addresses of a family, sorted, and their ports. The
// ports come from the first slice by name. Slices with other ports or without ports are
// ignored.
func mergeEndpoints(from []*discoveryv1.EndpointSlice, family discoveryv1.AddressType) ([]discoveryv1.Endpoint,
	[]discoveryv1.EndpointPort,
) {
	byName := slices.SortedFunc(slices.Values(from), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	var ports []discoveryv1.EndpointPort
	found := map[string]bool{}
	for _, s := range byName {
		if s.AddressType != family || len(s.Ports) == 0 || s.Ports[0].Port == nil ||
			ports != nil && !equality.Semantic.DeepEqual(ports, s.Ports) {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			ports = s.Ports
			for _, a := range e.Addresses {
				found[a] = true
			}
		}
	}
	ready := true
	var out []discoveryv1.Endpoint
	for _, a := range slices.Sorted(maps.Keys(found)) {
		out = append(out, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	return out, ports
}

func (f *follower) newSlice(family discoveryv1.AddressType, endpoints []discoveryv1.Endpoint,
	ports []discoveryv1.EndpointPort,
) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: sliceName(f.service, family),
			Labels: map[string]string{discoveryv1.LabelServiceName: f.service, discoveryv1.LabelManagedBy: managedBy},
		},
		AddressType: family, Endpoints: endpoints, Ports: ports,
	}
}

// putSlice creates, replaces or updates a slice so that it equals want.
func (f *follower) putSlice(ctx context.Context, want *discoveryv1.EndpointSlice) error {
	api := f.client.DiscoveryV1().EndpointSlices(f.namespace)
	have, err := f.target.Get(want.Name)
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, want, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			f.logChange("created", want, err)
			return err
		}
		// The watch selects slices by our label, so this slice has lost its label.
		have, err = api.Get(ctx, want.Name, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	if have.AddressType != want.AddressType {
		// The address type of a slice is immutable.
		if err := api.Delete(ctx, want.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(have.UID))}); err != nil {
			return err
		}
		_, err = api.Create(ctx, want, metav1.CreateOptions{})
		f.logChange("replaced", want, err)
		return err
	}
	now := have.DeepCopy()
	if now.Labels == nil {
		now.Labels = map[string]string{}
	}
	maps.Copy(now.Labels, want.Labels)
	now.Endpoints, now.Ports = want.Endpoints, want.Ports
	if equality.Semantic.DeepEqual(have, now) {
		return nil
	}
	// The API server refuses the update if the slice has changed since the comparison.
	_, err = api.Update(ctx, now, metav1.UpdateOptions{})
	f.logChange("updated", now, err)
	return err
}

func (f *follower) logChange(what string, s *discoveryv1.EndpointSlice, err error) {
	if err != nil {
		return // the caller logs the error
	}
	var addresses []string
	for _, e := range s.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	f.log.Info(what, "slice", s.Namespace+"/"+s.Name, "addresses", addresses)
}
