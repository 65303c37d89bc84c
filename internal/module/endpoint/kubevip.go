package endpoint

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

const (
	stepKubeVIP = "endpoint.kube-vip"
	// stepKubeVIPJoined is the same step on control planes that join.
	stepKubeVIPJoined = "endpoint.kube-vip-joined"
	stepKubeVIPRights = "endpoint.kube-vip-rights"
	// kubeVIPProgram is an argument that identifies this kube-vip among others on the
	// host.
	kubeVIPProgram = "slipway-kube-vip"
	// kubeVIPUser is the API user of kube-vip: it can read and write its Lease.
	kubeVIPUser = "slipway:kube-vip"
	caKey       = "/etc/kubernetes/pki/ca.key"
)

// kubeVIPTasks makes kube-vip hold the API address: on the control plane that holds its
// Lease, or with BGP on all of them. kube-vip has its own credentials with only the
// necessary permissions. They are signed with the cluster CA on the host itself, so the
// host must be part of the cluster. Other settings go to one control plane after the
// other, each when the address is served again.
func kubeVIPTasks(env module.Env) []engine.Task {
	return []engine.Task{
		{
			ID: stepKubeVIPRights, Title: "grant kube-vip access to Lease", Manager: true,
			When:     inMode(env, v1alpha1.EndpointKubeVIP),
			Consumes: []engine.KeyRef{module.KeyKube.Ref()},
			Run:      module.KeepObjects(module.StaticObjects(kubeVIPRights)),
		},
		kubeVIPTask(env, stepKubeVIP, func(h *engine.Host) bool { return hasClusterCA(env, h) }),
	}
}

// hasClusterCA reports whether a control plane has the cluster CA before others join.
func hasClusterCA(env module.Env, h *engine.Host) bool {
	return env.IsInitNode(h) || module.IsJoined(h)
}

// SetUpKubeVIP is the module for control planes that join: they hold the API address
// after they have joined, because they then have the cluster CA.
func SetUpKubeVIP(env module.Env) engine.Module {
	return engine.Module{Name: "endpoint-joined", Tasks: []engine.Task{
		kubeVIPTask(env, stepKubeVIPJoined, func(h *engine.Host) bool { return !hasClusterCA(env, h) }),
	}}
}

func kubeVIPTask(env module.Env, step string, on func(*engine.Host) bool) engine.Task {
	return engine.Task{
		ID: step, Title: "set up kube-vip", When: inMode(env, v1alpha1.EndpointKubeVIP),
		On:       func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) && on(h) },
		Needs:    []string{stepKubeVIPRights},
		Consumes: []engine.KeyRef{module.KeyContent.Ref()},
		Rollout:  engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
		Ops: func(s *engine.Scope) (op.List, error) {
			list, err := kubeVIP(env, s)
			return waitAddressServed(env, s, module.KubeVIPManifest, append(list, op.RevertStep{Step: step})), err
		},
	}
}

func kubeVIPRights() ([]*unstructured.Unstructured, error) {
	text, err := module.RenderTemplate(files, "kube-vip-rights.yaml", nil)
	if err != nil {
		return nil, err
	}
	return kube.DecodeObjects(text)
}

// kubeVIPCredentials returns the credentials of kube-vip for the API. kube-vip reads a
// renewed certificate automatically, but its CA only at its start.
func kubeVIPCredentials(env module.Env) (op.List, error) {
	conf, err := module.RenderTemplate(files, "kube-vip.conf",
		map[string]any{"CA": kubeVIPTrusts, "Port": env.Cluster.Spec.ControlPlaneEndpoint.Port})
	if err != nil {
		return nil, err
	}
	return op.List{
		op.Dir{Path: module.KubeVIPDir, Mode: 0o700},
		op.Certificate{
			Cert: module.KubeVIPCert, Key: module.KubeVIPKey, CAFile: caCert, CAKey: caKey,
			CommonName: kubeVIPUser, Client: true, ValiditySeconds: int64(env.CertValidity() / time.Second),
		},
		op.File{Path: module.KubeVIPDir + "/admin.conf", Content: conf, Mode: 0o600},
	}, nil
}

// kubeVIPTrusts is the path of the CA in the container of kube-vip.
const kubeVIPTrusts = "/run/kube-vip/ca.crt"

func kubeVIP(env module.Env, s *engine.Scope) (op.List, error) {
	image, err := module.FindImage(s, "kube-vip")
	if err != nil {
		return nil, err
	}
	ep := env.Cluster.Spec.ControlPlaneEndpoint
	link, err := linkOf(env, s.Host())
	if err != nil {
		return nil, err
	}
	bits := addressPrefix(ep.Address)[strings.LastIndex(addressPrefix(ep.Address), "/")+1:]
	values := map[string]any{
		"Image": image.Ref, "Images": image.Manifest.Digest, "Address": ep.Address, "Bits": bits, "Port": ep.Port, "Interface": link,
		"Program": kubeVIPProgram, "BGP": false, "Node": s.Host().Name,
		"Credentials": module.KubeVIPDir, "CA": kubeVIPTrusts, "CAFile": caCert,
	}
	if k := ep.KubeVIP; k != nil && k.Announce == spec.AnnounceBGP && k.BGP != nil {
		var peers []string
		for _, p := range k.BGP.Peers {
			// The format of bgp_peers: address:AS:password:multihop.
			peers = append(peers, fmt.Sprintf("%s:%d::%t", p.Address, p.AS, p.MultiHop))
		}
		values["BGP"], values["AS"], values["Peers"] = true, k.BGP.AS, strings.Join(peers, ",")
		values["Own"] = module.InternalAddress(s.Host().Host)
		values["Interface"] = "lo" // every control plane has the address
	}
	values["Digest"] = shortDigest(fmt.Append(nil, values))
	manifest, err := module.RenderTemplate(files, "kube-vip.yaml", values)
	if err != nil {
		return nil, err
	}
	list, err := kubeVIPCredentials(env)
	return append(list, op.File{Path: module.KubeVIPManifest, Content: manifest, Mode: 0o600}), err
}
