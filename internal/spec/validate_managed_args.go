package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"slipway.dev/slipway/internal/spec/componentargs"
	"slipway.dev/slipway/internal/spec/hostroles"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// checkManagedArgs rejects arguments that Slipway sets, and ports of Services that hosts use.
func (v *validator) checkManagedArgs() {
	for _, of := range v.listComponentArgs() {
		for _, name := range sortedKeys(of.args) {
			if hint, is := componentargs.IsManaged(of.component, name, of.args[name]); is {
				v.refuse(idConflictingFields, yamlfile.KeyPath(of.path, name),
					"Slipway sets "+name+" of "+of.component+", and operations depend on its value", hint)
			}
		}
	}
	if text, ok := v.c.Spec.Kubernetes.APIServer.ExtraArgs[componentargs.NodePorts]; ok {
		v.checkNodePorts(yamlfile.KeyPath(pathArguments, componentargs.NodePorts), text)
	}
}

// checkNodePorts rejects a range with a port of a program on a host: kube-proxy would send its connections to the
// pods of a Service.
func (v *validator) checkNodePorts(at, text string) {
	ports, err := utilnet.ParsePortRange(text)
	if err != nil || ports.Base < 1 || ports.Size < 1 {
		v.refuse(idInvalidArgument, at, fmt.Sprintf("%q is not a range of ports", text), "write the first and the last port: 30000-32767")
		return
	}
	var used []string
	for _, h := range v.c.Spec.Hosts {
		ssh := hostroles.Port{Number: cmp.Or(MergeSSH(v.c.Spec.SSH, h.SSH).Port, DefaultSSHPort), Component: "ssh"}
		for _, p := range append(hostroles.RequiredPorts(v.c, h.Roles), ssh) {
			if name := fmt.Sprintf("%d (%s)", p.Number, p.Component); ports.Contains(p.Number) && !slices.Contains(used, name) {
				used = append(used, name)
			}
		}
	}
	if len(used) > 0 {
		v.refuse(idConflictingFields, at, "the range has ports that hosts use: "+strings.Join(used, ", ")+"; a Service could take them over",
			"write a range without these ports: 30000-32767")
	}
}
