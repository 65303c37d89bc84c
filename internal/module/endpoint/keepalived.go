package endpoint

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

const (
	stepKeepalived   = "endpoint.keepalived"
	stepRelease      = "endpoint.release"
	keepalivedConfig = configDir + "/keepalived.conf"
	// keepalivedUsers has the user that runs the script of keepalived. keepalived looks
	// the user up by name, and the image has none. Without it the script is ignored, and
	// the address can remain on a host without a working API server.
	keepalivedUsers = configDir + "/keepalived.passwd"
	// sharedKey is a random key that all control planes of a cluster have since its
	// creation, and the one of them that protects least.
	sharedKey = "/etc/kubernetes/pki/front-proxy-ca.key"
	// passwordLength is the maximum in VRRP.
	passwordLength = 8
)

// passwordIn matches the password in a configuration.
var passwordIn = regexp.MustCompile(`(?m)^\s*auth_pass (\S+)$`)

// keyPassword is the VRRP password of the control planes.
var keyPassword = engine.NewKey("endpoint.password", "")

// keepalivedTasks makes one control plane with a healthy API server hold the API address.
// The control planes use unicast, so it also works in networks that drop multicast, such
// as most clouds.
func keepalivedTasks(env module.Env) []engine.Task {
	wanted := inMode(env, v1alpha1.EndpointKeepalived)
	var released []string
	if len(env.Leaving) > 0 {
		released = []string{stepRelease}
	}
	return []engine.Task{
		{
			ID: "endpoint.password", Title: "derive VRRP password", On: env.IsFirst, When: wanted,
			Provides: []engine.KeyRef{keyPassword.Ref()},
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.ReadFile{Path: keepalivedConfig, Secret: true}, op.ReadFile{Path: sharedKey, Secret: true}}, nil
			},
			After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
				// The password remains when the key is rotated: control planes with
				// different passwords would all hold the address.
				if has := passwordIn.FindSubmatch(results[0].Output); has != nil {
					engine.ProvideValue(s, keyPassword, string(has[1]))
				} else if !results[1].Missing { // otherwise there is no key yet, and dependent steps are pending
					engine.ProvideValue(s, keyPassword, derivePassword(results[1].Output))
				}
				return nil
			},
		},
		{
			// All control planes are in the configuration of each. They receive a new one
			// one after the other, each when the address is served again, so a bad
			// configuration reaches only one host.
			ID: stepKeepalived, Title: "set up keepalived", When: wanted, Needs: released,
			On:       func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) },
			Consumes: []engine.KeyRef{module.KeyContent.Ref(), keyPassword.Ref()},
			Rollout:  engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
			Ops: func(s *engine.Scope) (op.List, error) {
				list, err := keepalivedOps(env, s)
				return waitAddressServed(env, s, module.KeepalivedManifest, append(list, op.RevertStep{Step: stepKeepalived})), err
			},
		},
	}
}

// waitAddressServed adds a wait until the static pod runs with its present manifest and
// an API server answers at the address.
func waitAddressServed(env module.Env, s *engine.Scope, manifest string, list op.List) op.List {
	if !module.IsJoined(s.Host()) {
		return list // its API server does not run yet
	}
	ep := env.Cluster.Spec.ControlPlaneEndpoint
	return append(list, op.Wait{
		HTTP:     "https://" + net.JoinHostPort(ep.Address, strconv.Itoa(ep.Port)) + "/readyz",
		Manifest: manifest, TimeoutSeconds: 180,
	})
}

// ReleaseAddress is the module that makes leaving control planes release the API
// address, while their API servers still serve. With keepalived it runs before the
// others are removed from its configuration; otherwise both would hold the address. A
// failure to stop the pod does not block the removal.
func ReleaseAddress(env module.Env) engine.Module {
	mode := env.Cluster.Spec.ControlPlaneEndpoint.Mode
	list, program := op.List{op.RevertStep{Step: stepKeepalived}}, keepalivedConfig
	if mode == v1alpha1.EndpointKubeVIP {
		list, program = op.List{op.RevertStep{Step: stepKubeVIP}, op.RevertStep{Step: stepKubeVIPJoined}}, kubeVIPProgram
	}
	return engine.Module{Name: "endpoint", Tasks: []engine.Task{{
		ID: stepRelease, Title: "release API address", IgnoreError: true, Timeout: 2 * time.Minute,
		On:    func(h *engine.Host) bool { return env.IsReset(h) && h.HasRole(v1alpha1.RoleControlPlane) },
		When:  func(*engine.Scope) bool { return spec.HoldsAddress(mode) },
		Needs: []string{"endpoint.password"},
		Ops: func(*engine.Scope) (op.List, error) {
			return append(slices.Clone(list), op.Wait{Ended: program, TimeoutSeconds: 60}), nil
		},
	}}}
}

// derivePassword returns the password derived from a key. It reveals nothing about the key.
func derivePassword(key []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("slipway: VRRP"))
	return base32.StdEncoding.EncodeToString(mac.Sum(nil))[:passwordLength]
}

func keepalivedOps(env module.Env, s *engine.Scope) (op.List, error) {
	image, err := module.FindImage(s, "keepalived")
	if err != nil {
		return nil, err
	}
	ep := env.Cluster.Spec.ControlPlaneEndpoint
	own := module.InternalAddress(s.Host().Host)
	link, err := linkOf(env, s.Host())
	if err != nil {
		return nil, err
	}
	var peers []string
	for _, cp := range spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane) {
		if cp.Name != s.Host().Name {
			peers = append(peers, module.InternalAddress(cp))
		}
	}
	slices.Sort(peers) // the order of hosts makes no difference
	ip, _ := netip.ParseAddr(ep.Address)
	config, err := module.RenderTemplate(files, "keepalived.conf", map[string]any{
		"Name": s.Host().Name, "Interface": link, "RouterID": ep.RouterID, "Password": engine.GetValue(s, keyPassword),
		"IPv6": ip.Is6(), "Own": own, "Peers": peers, "Prefix": addressPrefix(ep.Address), "Port": ep.Port,
	})
	if err != nil {
		return nil, err
	}
	manifest, err := module.RenderTemplate(files, "keepalived.yaml", map[string]any{
		"Image": image.Ref, "Images": image.Manifest.Digest, "Config": keepalivedConfig, "Users": keepalivedUsers,
		"Digest": shortDigest(config, []byte(image.Manifest.Digest)),
	})
	if err != nil {
		return nil, err
	}
	return op.List{
		op.File{Path: keepalivedUsers, Content: []byte("root:x:0:0:root:/:/nonexistent\n")},
		op.File{Path: keepalivedConfig, Content: config, Mode: 0o600, Secret: true},
		op.File{Path: module.KeepalivedManifest, Content: manifest, Mode: 0o600},
	}, nil
}

// linkOf returns the interface on which a control plane holds the API address: by default
// the interface that has the address of the host.
func linkOf(env module.Env, h *engine.Host) (string, error) {
	if link := env.Cluster.Spec.ControlPlaneEndpoint.Interface; link != "" {
		return link, nil
	}
	own, err := netip.ParseAddr(module.InternalAddress(h.Host))
	if err == nil && h.Facts != nil {
		for _, a := range h.Facts.Addresses {
			if p, err := netip.ParsePrefix(a.Prefix); err == nil && p.Addr().Unmap() == own.Unmap() {
				return a.Link, nil
			}
		}
	}
	return "", fmt.Errorf("finding the interface of %s on %s: no interface has this address; "+
		"write spec.controlPlaneEndpoint.interface", own, h.Name)
}
