package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// System configures the preparation of the hosts.
type System struct {
	// Time servers. Default: the servers of the host.
	// +listType=atomic
	NTPServers []string `json:"ntpServers,omitempty"`
	// A time zone, such as `Europe/Berlin`. Default: the time zone of the host.
	Timezone string `json:"timezone,omitempty"`
	// Kernel settings; they override Slipway's settings.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Limits of login sessions on nodes, also of root: `nofile`, `nproc`, `memlock`
	// (KiB), `core` (KiB). A number, `unlimited`, or `SOFT:HARD`.
	Limits map[string]string `json:"limits,omitempty"`
	// `true`: Slipway does not change kernel settings, limits, time and swap, but the
	// prechecks still require correct values. On an existing cluster, earlier settings
	// by Slipway remain until `delete cluster`. Default: `false`.
	SkipConfigure bool `json:"skipConfigure,omitempty"`
}

// HookPhase selects when a hook runs.
// +kubebuilder:validation:Enum=preInstall;postControlPlane;postInstall;preDelete;preUpgrade;postUpgrade
type HookPhase string

// The phases.
const (
	HookPreInstall       HookPhase = "preInstall"
	HookPostControlPlane HookPhase = "postControlPlane"
	HookPostInstall      HookPhase = "postInstall"
	HookPreDelete        HookPhase = "preDelete"
	HookPreUpgrade       HookPhase = "preUpgrade"
	HookPostUpgrade      HookPhase = "postUpgrade"
)

// Hook is a script of the user.
type Hook struct {
	// A unique name: a–z, 0–9 and `-`, at most 63 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// `preInstall`, `postControlPlane`, `postInstall`, `preDelete`, `preUpgrade` or
	// `postUpgrade`.
	Phase HookPhase `json:"phase"`
	// The roles of the hosts on which the hook runs: `control-plane`, `worker`. Default:
	// all hosts.
	// +listType=atomic
	Roles []Role `json:"roles,omitempty"`
	// The file of the script.
	Script string `json:"script"`
	// Files that are sent to the same directory, with their base names.
	// +listType=atomic
	Materials []string `json:"materials,omitempty"`
	// After this time the hook is stopped and counts as failed. Default: `10m`.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	// +kubebuilder:validation:XValidation:rule=`duration(self) > duration("0s")`,message="the duration must be above zero"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// `true`: the operation continues if the hook fails. Default: `false`.
	IgnoreErrors bool `json:"ignoreErrors,omitempty"`
}
