package spec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"slipway.dev/slipway/api/v1alpha1"
)

// A kubeletState is a file in which a kubelet stores its assignments to containers. A
// kubelet does not start if its settings differ from the file.
type kubeletState struct {
	file         string
	field, flag  string // of the policy
	without      string // the default policy, which assigns nothing
	alsoDependOn func(v1alpha1.KubeletSettings) any
}

// kubeletStates lists the files of Kubernetes 1.35 to 1.37. The other files of the
// kubelet (devices, dynamic resources, allocated and actuated pods) do not depend on
// settings.
var kubeletStates = []kubeletState{
	{"/var/lib/kubelet/cpu_manager_state", "cpuManagerPolicy", "cpu-manager-policy", "none", reservedCPUs},
	{"/var/lib/kubelet/memory_manager_state", "memoryManagerPolicy", "memory-manager-policy", "None", reservedMemory},
}

// OutdatedKubeletStates returns the state files with which a kubelet with the new
// settings does not start, if a kubelet with the old settings wrote them.
func OutdatedKubeletStates(was, now v1alpha1.KubeletSettings) (files []string) {
	for _, s := range kubeletStates {
		policy := s.policyInForce(now)
		if policy != s.policyInForce(was) || policy != s.without && !equalJSON(s.alsoDependOn(was), s.alsoDependOn(now)) {
			files = append(files, s.file)
		}
	}
	return files
}

// policyInForce returns the policy in force: a flag has precedence over a field.
func (s kubeletState) policyInForce(k v1alpha1.KubeletSettings) string {
	policy := k.ExtraArgs[s.flag]
	if policy == "" {
		policy, _ = k.Config[s.field].(string)
	}
	if policy == "" {
		policy = s.without
	}
	return policy
}

// strictReservation is the option of the static policy that withdraws reserved CPUs from
// all pods. It changes the CPUs in the state file.
const strictReservation = "strict-cpu-reservation"

// reservedCPUs returns the settings that decide which CPUs the static policy can assign.
// The other options of the policy apply only to new pods.
func reservedCPUs(k v1alpha1.KubeletSettings) any {
	options, _ := k.Config["cpuManagerPolicyOptions"].(map[string]any)
	strict := fmt.Sprint(options[strictReservation]) == "true"
	if flag := k.ExtraArgs["cpu-manager-policy-options"]; flag != "" {
		strict = slices.Contains(strings.Split(flag, ","), strictReservation+"=true")
	}
	list, _ := k.Config["reservedSystemCPUs"].(string)
	if flag := k.ExtraArgs["reserved-cpus"]; flag != "" {
		list = flag
	}
	if list != "" { // it has precedence over numbers
		return []any{strict, list}
	}
	sum := reservedQuantity(k, "kubeReserved", "kube-reserved")
	sum.Add(reservedQuantity(k, "systemReserved", "system-reserved"))
	return []any{strict, sum.Value()} // whole CPUs, rounded up as the kubelet does
}

// reservedQuantity returns the CPUs that a field or a flag reserves.
func reservedQuantity(k v1alpha1.KubeletSettings, field, flag string) resource.Quantity {
	reserved, _ := k.Config[field].(map[string]any)
	text := ""
	if cpu, ok := reserved["cpu"]; ok {
		text = fmt.Sprint(cpu)
	}
	if args := k.ExtraArgs[flag]; args != "" {
		text = ""
		for pair := range strings.SplitSeq(args, ",") {
			if cpu, ok := strings.CutPrefix(pair, "cpu="); ok {
				text = cpu
			}
		}
	}
	q, err := resource.ParseQuantity(text)
	if err != nil { // the kubelet rejects it
		return resource.Quantity{}
	}
	return q
}

// reservedMemory returns the settings that decide which memory the static policy can
// assign. They must be the sum of the other reservations.
func reservedMemory(k v1alpha1.KubeletSettings) any {
	return []any{k.Config["reservedMemory"], k.ExtraArgs["reserved-memory"]}
}

func equalJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}
