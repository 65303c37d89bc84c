package spec

import (
	"fmt"
	"maps"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// AuthenticationFile configures which anonymous requests a hardened API server accepts.
const AuthenticationFile = "/etc/kubernetes/slipway/authentication.yaml"

const authenticationFlag = "authentication-config"

// A Hardened holds the settings of the hardening profile, except settings that the user
// has set.
type Hardened struct {
	APIServer, ControllerManager, Scheduler map[string]string
	Kubelet                                 map[string]any
}

// ConfiguresAnonymous reports whether API servers handle anonymous requests according to Slipway's
// file.
func (h Hardened) ConfiguresAnonymous() bool { return h.APIServer[authenticationFlag] != "" }

// HardeningSettings returns the settings of the profile for a cluster; none if hardening is off.
func HardeningSettings(c *v1alpha1.Cluster) Hardened {
	k := c.Spec.Kubernetes
	if !k.Hardening {
		return Hardened{}
	}
	h := hardeningProfile()
	if overrulesAuthentication(k.APIServer.ExtraArgs) != "" {
		delete(h.APIServer, authenticationFlag)
	}
	for _, part := range []struct{ ours, theirs map[string]string }{
		{h.APIServer, k.APIServer.ExtraArgs}, {h.ControllerManager, k.ControllerManager.ExtraArgs}, {h.Scheduler, k.Scheduler.ExtraArgs},
	} {
		for name := range part.theirs {
			delete(part.ours, name)
		}
	}
	for name := range k.Kubelet.Config {
		delete(h.Kubelet, name)
	}
	return h
}

// hardeningProfile returns all settings of the profile. It has cipher suites with forward secrecy
// that are not known to be weak.
func hardeningProfile() Hardened {
	suites := []string{
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	}
	common := map[string]string{"profiling": "false", "tls-min-version": "VersionTLS12", "tls-cipher-suites": strings.Join(suites, ",")}
	h := Hardened{APIServer: maps.Clone(common), ControllerManager: maps.Clone(common), Scheduler: maps.Clone(common)}
	h.APIServer[authenticationFlag] = AuthenticationFile
	h.APIServer["service-account-lookup"] = "true"
	h.ControllerManager["bind-address"], h.Scheduler["bind-address"] = "127.0.0.1", "127.0.0.1"
	list := make([]any, len(suites))
	for i, s := range suites {
		list[i] = s
	}
	h.Kubelet = map[string]any{
		"authentication":         map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}},
		"authorization":          map[string]any{"mode": "Webhook"},
		"makeIPTablesUtilChains": true, "readOnlyPort": 0, "rotateCertificates": true,
		"tlsCipherSuites": list, "tlsMinVersion": "VersionTLS12",
	}
	return h
}

// overrulesAuthentication returns an argument of the user with which an API server does
// not accept Slipway's file; "" if there is none.
func overrulesAuthentication(args map[string]string) string {
	for _, name := range sortedKeys(args) {
		if name == authenticationFlag || name == "anonymous-auth" || strings.HasPrefix(name, "oidc-") {
			return name
		}
	}
	return ""
}

// warnHardeningOverrides reports which settings of the user override the profile.
func (v *validator) warnHardeningOverrides() {
	k := v.c.Spec.Kubernetes
	if !k.Hardening {
		return
	}
	const path = "spec.kubernetes"
	all := hardeningProfile()
	told := func(at string, value any) {
		v.warn(idHardeningOverruled, at, fmt.Sprintf("this value (%v) overrides the hardening profile", value), "remove it if you do not need it")
	}
	for _, part := range []struct {
		path         string
		ours, theirs map[string]string
	}{
		{path + ".apiServer.extraArgs", all.APIServer, k.APIServer.ExtraArgs},
		{path + ".controllerManager.extraArgs", all.ControllerManager, k.ControllerManager.ExtraArgs},
		{path + ".scheduler.extraArgs", all.Scheduler, k.Scheduler.ExtraArgs},
	} {
		for _, name := range sortedKeys(part.theirs) {
			if ours, ok := part.ours[name]; ok && ours != part.theirs[name] {
				told(yamlfile.KeyPath(part.path, name), part.theirs[name])
			}
		}
	}
	if name := overrulesAuthentication(k.APIServer.ExtraArgs); name != "" && name != authenticationFlag {
		told(yamlfile.KeyPath(pathArguments, name), k.APIServer.ExtraArgs[name])
	}
	for _, name := range sortedKeys(k.Kubelet.Config) {
		if _, ok := all.Kubelet[name]; ok {
			told(path+".kubelet.config."+name, "yours")
		}
	}
}
