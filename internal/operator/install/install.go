// Package install installs the operator in a Kubernetes cluster, upgrades and removes it, and reports its state.
package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/operator/api"
	"slipway.dev/slipway/internal/operator/manifests"
	"slipway.dev/slipway/internal/version"
)

// Problems of an installation.
const (
	idMissing   = "operator-not-installed"
	idNewer     = "operator-newer-installed"
	idClusters  = "operator-clusters-exist"
	idForeign   = "operator-object-foreign"
	idNotReady  = "operator-not-ready"
	idServerAPI = "operator-in-management-server"
)

// fieldManager owns the fields of the objects.
const fieldManager = "slipway-operator"

const (
	// interval is the time between two requests of a wait.
	interval = time.Second
	// servedTime limits the wait until the kinds are served.
	servedTime = time.Minute
)

// An Installer changes the operator in one Kubernetes cluster.
type Installer struct {
	client dynamic.Interface
	url    string
	// Report receives what was done, one line each. It can be nil.
	Report func(text string)
}

// Open returns an installer for the cluster of a context of a kubeconfig. "": the same as kubectl.
func Open(kubeconfig, context string) (*Installer, error) {
	config, _, err := api.LoadConfig(kubeconfig, context)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Installer{client: client, url: config.Host}, nil
}

func (i *Installer) report(format string, args ...any) {
	if i.Report != nil {
		i.Report(fmt.Sprintf(format, args...))
	}
}

// resource returns the client for an object.
func (i *Installer) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	if o.GetNamespace() != "" {
		return i.client.Resource(resource).Namespace(o.GetNamespace())
	}
	return i.client.Resource(resource)
}

// Install applies all objects, and waits until the kinds are served. isUpgrade requires an installed operator. An
// installed operator of a later version is refused.
func (i *Installer) Install(ctx context.Context, o manifests.Options, isUpgrade bool) error {
	installed, err := i.loadDeployment(ctx)
	if err != nil {
		return err
	}
	if err := i.refuse(ctx, o, installed, isUpgrade); err != nil {
		return err
	}
	if installed != nil {
		o.KeepInstalled(installed)
	}
	if o.APIURL == "" {
		o.APIURL = i.url
	}
	objects, err := manifests.Objects(o)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := i.apply(ctx, object); err != nil {
			return err
		}
	}
	return i.waitUntilServed(ctx)
}

// refuse returns why the operator cannot be installed. Nothing was changed.
func (i *Installer) refuse(ctx context.Context, o manifests.Options, installed *appsv1.Deployment, isUpgrade bool) error {
	if installed == nil {
		if isUpgrade {
			return notInstalled()
		}
		if err := i.refuseServer(ctx); err != nil {
			return err
		}
		return i.refuseLaterDefinitions(ctx, o.Version)
	}
	if !manifests.IsOurs(installed) {
		return diag.Refuse(idForeign, "Deployment "+manifests.Namespace+"/"+manifests.Name+" exists, and is not of Slipway",
			"delete or rename it")
	}
	if isUpgrade && o.Image == "" && !manifests.FollowsVersion(installed) {
		return diag.Refuse(manifests.IDFlag, "the operator has the image "+manifests.ImageOf(installed)+", which does not follow the version",
			"set --image to the image of this version")
	}
	return refuseEarlier(manifests.VersionOf(installed), o.Version)
}

// refuseEarlier refuses a version that is earlier than the installed one. Other texts than versions are not compared.
func refuseEarlier(installed, wanted string) error {
	if version.IsEarlier(wanted, installed) {
		return diag.Refuse(idNewer,
			fmt.Sprintf("the operator has version %s, and this program has the earlier version %s", installed, wanted),
			"use slipway "+installed+" or a later version")
	}
	return nil
}

func notInstalled() error {
	return diag.Refuse(idMissing, "the cluster has no operator", "run 'slipway operator install', or check --kubeconfig and --context")
}

// refuseLaterDefinitions refuses the definitions of a later version, which an uninstalled operator has left.
func (i *Installer) refuseLaterDefinitions(ctx context.Context, wanted string) error {
	list, err := i.client.Resource(manifests.DefinitionResource).List(ctx, metav1.ListOptions{LabelSelector: manifests.OursSelector})
	if err != nil {
		return fmt.Errorf("reading the definitions: %w", err)
	}
	for n := range list.Items {
		if err := refuseEarlier(manifests.VersionOf(&list.Items[n]), wanted); err != nil {
			return err
		}
	}
	return nil
}

// refuseServer refuses the API of a management server: it has its own controllers, and no Pods.
func (i *Installer) refuseServer(ctx context.Context) error {
	_, err := i.client.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace(manifests.Namespace).
		List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return diag.Refuse(idServerAPI, "this API has no Deployments: it is the API of a management server, which has its own controllers",
			"set --kubeconfig and --context to a Kubernetes cluster")
	}
	return err
}

// loadDeployment returns the Deployment of the operator, nil if there is none.
func (i *Installer) loadDeployment(ctx context.Context) (*appsv1.Deployment, error) {
	is, err := i.client.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace(manifests.Namespace).
		Get(ctx, manifests.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Deployment %s/%s: %w", manifests.Namespace, manifests.Name, err)
	}
	out := new(appsv1.Deployment)
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(is.Object, out)
}

// apply makes an object as it is wanted. Fields of others remain, for example the CA of the webhook.
func (i *Installer) apply(ctx context.Context, object *unstructured.Unstructured) error {
	at, name := i.resource(object), describe(object)
	was, err := at.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	isNew := err != nil
	is, err := at.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	switch {
	case isNew:
		i.report("%s created", name)
	case !isSame(was, is):
		i.report("%s changed", name)
	}
	return nil
}

// isSame reports whether two versions of an object differ only in fields of the API server and of controllers.
func isSame(a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, o := range []*unstructured.Unstructured{a, b} {
		unstructured.RemoveNestedField(o.Object, "status")
		for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
		}
	}
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}

func describe(o *unstructured.Unstructured) string {
	if o.GetNamespace() != "" {
		return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
	}
	return o.GetKind() + " " + o.GetName()
}

// waitUntilServed waits until the kinds of Slipway are served.
func (i *Installer) waitUntilServed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, servedTime)
	defer cancel()
	for _, resource := range []string{"clusters", "operations", "operationlogs"} {
		var last error
		err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
			_, last = i.client.Resource(manifests.GroupVersion.WithResource(resource)).List(ctx, metav1.ListOptions{Limit: 1})
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("waiting until %s are served: %w", resource, errors.Join(err, last))
		}
	}
	return nil
}

// A NotReadyError reports an operator that was installed, and is not ready in time.
type NotReadyError struct{ message string }

func (e *NotReadyError) Error() string {
	return e.message + "; check its Pods with 'kubectl --namespace " + manifests.Namespace + " describe pods' [" + idNotReady + "]"
}

// WaitUntilReady waits until all Pods of the operator run its current version and are ready.
func (i *Installer) WaitUntilReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last Status
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		s, err := i.Status(ctx)
		if err != nil {
			return false, err
		}
		last = *s
		return s.IsReady(), nil
	})
	if wait.Interrupted(err) {
		return &NotReadyError{fmt.Sprintf("the operator was installed, but is not ready after %s: %s", limit, last.describeWait())}
	}
	return err
}
