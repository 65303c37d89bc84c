package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Addon is installed in the running cluster: manifests, a chart, or the content that
// the bundle has under the name of the add-on.
type Addon struct {
	// A unique name: a–z, 0–9 and `-`, at most 40 characters. Every object has it in
	// the label `slipway.dev/addon`.
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Files, directories (their `*.yaml`, `*.yml` and `*.json`, sorted by name) or
	// URLs, which the manager downloads. `https://…@sha256:…` pins the content.
	// +listType=atomic
	Manifests []string `json:"manifests,omitempty"`
	// A chart, instead of manifests.
	Chart *Chart `json:"chart,omitempty"`
	// Values of the chart, or of `local-path`.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Values Object `json:"values,omitempty"`
	// Files with values: a later file overrides an earlier one, and `values` overrides
	// all files.
	// +listType=atomic
	ValuesFiles []string `json:"valuesFiles,omitempty"`
	// The namespace of objects without a namespace. Slipway creates it if it is
	// missing, and does not delete it. Default: `default`.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	Namespace string `json:"namespace,omitempty"`
	// The minor versions that the add-on supports, `"1.37"`. For another version,
	// Slipway rejects the cluster or the upgrade; `--ignore-check addons` skips this
	// check. Default: all.
	// +listType=atomic
	Kubernetes []string `json:"kubernetes,omitempty"`
	// `false`: do not wait for its pods. Default: `true`.
	Wait *bool `json:"wait,omitempty"`
	// The time limit of the wait for its pods. Default: `5m`.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	// +kubebuilder:validation:XValidation:rule=`duration(self) > duration("0s")`,message="the duration must be above zero"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// The number of further attempts after a failure, at most 10. Default: `0`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Retries int `json:"retries,omitempty"`
}

// Chart is the source of a Helm chart: `path`, or `repository`, `name` and `version`.
type Chart struct {
	// A directory or an archive.
	Path string `json:"path,omitempty"`
	// A chart repository, `https://…`, or a path in a registry, `oci://HOST/PATH`,
	// without the chart's name.
	Repository string `json:"repository,omitempty"`
	// The name of the chart. Required with `repository`.
	Name string `json:"name,omitempty"`
	// One exact version of the chart. Required with `repository`.
	Version string `json:"version,omitempty"`
	// `sha256:` and the checksum of the archive. Default: from the repository.
	Digest string `json:"digest,omitempty"`
}
