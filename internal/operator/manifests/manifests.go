// Package manifests has the objects of the operator in a Kubernetes cluster. 'slipway operator install' applies them,
// and deploy/operator.yaml has them with the default options.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/crds"
	"slipway.dev/slipway/api/policies"
	"slipway.dev/slipway/api/roles"
	"slipway.dev/slipway/internal/bundle/operatorimage"
	"slipway.dev/slipway/internal/diag"
)

// Names of the objects.
const (
	// Namespace has the operator. Its UID identifies the manager of clusters, so it is always the same one.
	Namespace = "slipway-system"
	// Name is the name of the Deployment, its ServiceAccount and its roles.
	Name = "slipway-controllers"
	// WebhookName is the name of the Service, the Secret and the configuration of the webhook.
	WebhookName = "slipway-webhook"
	// Container is the name of the container.
	Container = "slipwayd"
)

// Labels of all objects.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelVersion   = "app.kubernetes.io/version"

	labelName = "app.kubernetes.io/name"
	managedBy = "slipway"
)

// OursSelector selects the objects of Slipway, and PodSelector the Pods of the operator.
const (
	OursSelector = LabelManagedBy + "=" + managedBy
	PodSelector  = labelName + "=" + Name
)

// IDFlag is the problem of a kubeconfig or a flag.
const IDFlag = "operator-kubeconfig-invalid"

// Options select details of the operator.
type Options struct {
	// Version is the version of Slipway.
	Version string
	// Image is the reference of the image. Default: operatorimage.RefOf of the version.
	Image string
	// PullSecrets are Secrets of the namespace with logins of registries.
	PullSecrets []string
	// Replicas is the number of Pods. Default: 2.
	Replicas int32
	// Executor is the default executor of operations. Default: ExecutorInProcess.
	Executor string
	// DataClaim is a PersistentVolumeClaim of the namespace for bundles, backup sets and the archive. With more than one
	// replica, its volume must be writable from several nodes. "": the files of a Pod are deleted with it.
	DataClaim string
	// APIURL is the address of the API of this cluster for people. The command line shows it when it refuses to change a
	// cluster of the operator.
	APIURL string
}

// CheckValues refuses values that the API server would refuse after a part of the objects was applied.
func (o *Options) CheckValues() error {
	refuse := func(flag, value string, why ...string) error {
		return diag.Refuse(IDFlag, fmt.Sprintf("%s %q is not valid: %s", flag, value, strings.Join(why, "; ")), "correct the flag")
	}
	if o.Executor != "" && o.Executor != ExecutorInProcess && o.Executor != ExecutorJob {
		return refuse("--executor", o.Executor, "the executors are "+ExecutorInProcess+" and "+ExecutorJob)
	}
	if o.Replicas < 0 {
		return refuse("--replicas", strconv.Itoa(int(o.Replicas)), "set 1 or more")
	}
	for _, name := range o.PullSecrets {
		if why := validation.IsDNS1123Subdomain(name); len(why) > 0 {
			return refuse("--pull-secret", name, why...)
		}
	}
	if why := validation.IsDNS1123Subdomain(o.DataClaim); o.DataClaim != "" && len(why) > 0 {
		return refuse("--data-claim", o.DataClaim, why...)
	}
	if at, err := url.Parse(o.APIURL); o.APIURL != "" && (err != nil || at.Host == "") {
		return refuse("--api-url", o.APIURL, "use a URL such as https://api.example.com:6443")
	}
	if strings.ContainsAny(o.Image, " \t\n") {
		return refuse("--image", o.Image, "use a reference such as registry.example.com/slipwayd:v1")
	}
	return nil
}

// SetDefaults sets the fields that have no value.
func (o *Options) SetDefaults() {
	if o.Image == "" {
		o.Image = operatorimage.RefOf(o.Version)
	}
	if o.Replicas == 0 {
		o.Replicas = 2
	}
}

// Objects returns all objects, in the order in which they are applied.
func Objects(o Options) ([]*unstructured.Unstructured, error) {
	if err := o.CheckValues(); err != nil {
		return nil, err
	}
	o.SetDefaults()
	var out []*unstructured.Unstructured
	for _, text := range [][]byte{crds.Clusters, crds.Operations, crds.OperationLogs, roles.Roles} {
		objects, err := decode(text)
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	objects := []runtime.Object{
		newNamespace(), newServiceAccount(), newClusterRole(), newClusterRoleBinding(), newRole(Name, ListNamespacedRules()),
		newRoleBinding(Name, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: Name, Namespace: Namespace}),
		newRole(jobRole, listIdentityRules()), newRoleBinding(jobRole, rbacv1.Subject{
			Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + Namespace,
		}),
		newService(), newDeployment(o), newDisruptionBudget(), newWebhook(),
	}
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		unstructured.RemoveNestedField(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		out = append(out, &unstructured.Unstructured{Object: content})
	}
	for _, text := range [][]byte{policies.Clusters, policies.Operations, policies.Secrets} {
		objects, err := decode(text)
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	for _, object := range out {
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[LabelManagedBy], labels[LabelVersion] = managedBy, strings.ReplaceAll(o.Version, "+", "_") // a label has no plus sign
		object.SetLabels(labels)
	}
	return sorted(out), nil
}

// decode reads YAML documents.
func decode(text []byte) (out []*unstructured.Unstructured, err error) {
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := new(unstructured.Unstructured)
		err := documents.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading a definition: %w", err)
		}
		if len(object.Object) > 0 {
			out = append(out, object)
		}
	}
}

// Render returns the objects as YAML documents.
func Render(o Options) ([]byte, error) {
	objects, err := Objects(o)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, object := range objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes(), nil
}

// ImageOf returns the image of the operator in a Deployment, "" if it has none.
func ImageOf(d *appsv1.Deployment) string { return findContainer(d).Image }

// findContainer returns the container of the operator in a Deployment, an empty one if it is missing.
func findContainer(d *appsv1.Deployment) corev1.Container {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == Container {
			return c
		}
	}
	return corev1.Container{}
}

// VersionOf returns the version of Slipway in the labels of an object.
func VersionOf(o metav1.Object) string {
	return strings.ReplaceAll(o.GetLabels()[LabelVersion], "_", "+")
}

// IsOurs reports whether Slipway has made an object.
func IsOurs(o metav1.Object) bool { return o.GetLabels()[LabelManagedBy] == managedBy }
