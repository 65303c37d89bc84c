package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestOutdatedKubeletStates_FollowSettings(t *testing.T) {
	const cpu, memory = "/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state"
	type object = map[string]any
	type kubelet = v1alpha1.KubeletSettings
	static := func(more object) kubelet {
		config := object{"cpuManagerPolicy": "static", "kubeReserved": object{"cpu": "500m"}}
		for k, v := range more {
			config[k] = v
		}
		return kubelet{Config: config}
	}
	strict := object{"cpuManagerPolicyOptions": object{"strict-cpu-reservation": "true"}}
	banks := func(size string) kubelet {
		return kubelet{Config: object{
			"memoryManagerPolicy": "Static",
			"reservedMemory":      []any{object{"numaNode": int64(0), "limits": object{"memory": size}}},
		}}
	}
	for _, tc := range []struct {
		name, reason string
		was, now     kubelet
		want         []string
	}{
		{"nothing", "both have the defaults", kubelet{}, kubelet{}, nil},
		{
			"other settings", "they are in no state file",
			kubelet{},
			kubelet{Config: object{"maxPods": int64(50), "topologyManagerPolicy": "best-effort", "podPidsLimit": int64(9)}},
			nil,
		},
		{
			"default in words", "the file has the same policy",
			kubelet{},
			kubelet{Config: object{"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}},
			nil,
		},
		{"to static", "the file names none", kubelet{}, static(nil), []string{cpu}},
		{"from static", "the file names static", static(nil), kubelet{}, []string{cpu}},
		{"memory", "it has a file of its own", kubelet{}, banks("1Gi"), []string{memory}},
		{
			"both", "each has its file",
			kubelet{Config: object{"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static"}},
			kubelet{},
			[]string{cpu, memory},
		},
		{"flag", "flags count as well", kubelet{}, kubelet{ExtraArgs: map[string]string{"cpu-manager-policy": "static"}}, []string{cpu}},
		{
			"flag over field", "the policy in force is the same", static(nil),
			kubelet{ExtraArgs: map[string]string{"cpu-manager-policy": "static", "kube-reserved": "memory=1Gi,cpu=1"}},
			nil,
		},
		{
			"field over no flag", "an empty flag says nothing", static(nil),
			kubelet{Config: static(nil).Config, ExtraArgs: map[string]string{"cpu-manager-policy": ""}},
			nil,
		},
		{"strict reservation", "the state has reserved CPUs in the shared pool", static(nil), static(strict), []string{cpu}},
		{
			"strict reservation by flag", "the same", static(nil),
			kubelet{
				Config:    static(nil).Config,
				ExtraArgs: map[string]string{"cpu-manager-policy-options": "full-pcpus-only=true,strict-cpu-reservation=true"},
			},
			[]string{cpu},
		},
		{"another option", "it is for new pods", static(nil), static(object{"cpuManagerPolicyOptions": object{"full-pcpus-only": "true"}}), nil},
		{
			"fewer CPUs", "a reserved CPU may be assigned to a pod", static(nil),
			static(object{"systemReserved": object{"cpu": "1500m"}}),
			[]string{cpu},
		},
		{"the same number of CPUs", "the kubelet rounds up", static(nil), static(object{"kubeReserved": object{"cpu": "1"}}), nil},
		{
			"the list of CPUs", "it counts more than the number", static(object{"reservedSystemCPUs": "0"}),
			static(object{"reservedSystemCPUs": "1"}),
			[]string{cpu},
		},
		{
			"a number beside a list of CPUs", "the list counts", static(object{"reservedSystemCPUs": "0"}),
			static(object{"reservedSystemCPUs": "0", "kubeReserved": object{"cpu": "3"}}), nil,
		},
		{"CPUs without the policy", "nothing is assigned", kubelet{}, kubelet{Config: object{"kubeReserved": object{"cpu": "3"}}}, nil},
		{"memory of a bank", "the kubelet compares its banks with the file", banks("1Gi"), banks("2Gi"), []string{memory}},
		{
			"a quantity that is none", "the kubelet refuses it, and nothing is to be removed", static(nil),
			static(object{"systemReserved": object{"cpu": "many"}}), nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, OutdatedKubeletStates(tc.was, tc.now)); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}
