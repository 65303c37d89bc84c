package endpoint

import (
	"fmt"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

const (
	stepKubeVIP = "endpoint.kube-vip"
	// kubeVIPProgram is an argument that no other kube-vip of the host has.
	kubeVIPProgram = "slipway-kube-vip"
)

// kubeVIPTask has kube-vip hold the API's address: on the control plane that
// leads by a Lease, or with BGP on all of them. It is laid down when the
// cluster has begun and the administrator's credentials are good, so it needs
// none of those that are good before. Other settings go to one control plane
// after the other, each when the address is served again.
func kubeVIPTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepKubeVIP, Title: "hold the API's address", When: inMode(env, v1alpha1.EndpointKubeVIP),
		On:       func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) },
		Consumes: []engine.KeyRef{module.KeyContent.Ref()},
		Rollout:  engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
		Ops: func(s *engine.Scope) (op.List, error) {
			list, err := kubeVIP(env, s)
			return servedAfter(env, s, module.KubeVIPManifest, append(list, op.PutBack{Step: stepKubeVIP})), err
		},
	}
}

func kubeVIP(env module.Env, s *engine.Scope) (op.List, error) {
	image, err := module.Image(s, "kube-vip")
	if err != nil {
		return nil, err
	}
	ep := env.Cluster.Spec.ControlPlaneEndpoint
	link, err := linkOf(env, s.Host())
	if err != nil {
		return nil, err
	}
	bits := prefix(ep.Address)[strings.LastIndex(prefix(ep.Address), "/")+1:]
	values := map[string]any{
		"Image": image.Ref, "Images": image.Manifest.Digest, "Address": ep.Address, "Bits": bits, "Port": ep.Port, "Interface": link,
		"Program": kubeVIPProgram, "BGP": false,
	}
	if k := ep.KubeVIP; k != nil && k.Announce == spec.AnnounceBGP && k.BGP != nil {
		var peers []string
		for _, p := range k.BGP.Peers {
			// address:AS:password:multihop, as kube-vip's bgp_peers wants it.
			peers = append(peers, fmt.Sprintf("%s:%d::%t", p.Address, p.AS, p.MultiHop))
		}
		values["BGP"], values["AS"], values["Peers"] = true, k.BGP.AS, strings.Join(peers, ",")
		values["Own"] = module.InternalAddress(s.Host().Host)
		values["Interface"] = "lo" // every control plane has the address
	}
	values["Digest"] = digest(fmt.Append(nil, values))
	manifest, err := module.Render(files, "kube-vip.yaml", values)
	if err != nil {
		return nil, err
	}
	return op.List{op.File{Path: module.KubeVIPManifest, Content: manifest, Mode: 0o600}}, nil
}
