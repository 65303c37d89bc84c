package spec

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

func (v *validator) checkDomain(path, name string) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		v.refuse(idInvalidName,
			path, strconv.Quote(name)+" is not a DNS name: only a-z, 0-9, '-' and '.' are allowed, with a letter or digit first and last",
			didYouMeanName(name))
	}
}

var (
	versionSyntax  = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`)
	featureGate    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	argumentSyntax = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)
)

func (v *validator) checkKubernetes() {
	k, path := v.c.Spec.Kubernetes, "spec.kubernetes"
	v.checkVersion(path+".version", k.Version)
	if k.DNSDomain != "" {
		v.checkDomain(path+".dnsDomain", k.DNSDomain)
	}
	v.checkOneOf(path+".proxyMode", k.ProxyMode, []string{proxyNFTables, proxyIPTables, proxyIPVS, proxyNone}, nil)
	v.checkKubeletConfig(path+".kubelet.config", k.Kubelet.Config)
	v.checkExtraArgs(path+".kubelet.extraArgs", k.Kubelet.ExtraArgs)
	v.checkDataDirs(k.Kubelet)
	v.checkExtraArgs(path+".apiServer.extraArgs", k.APIServer.ExtraArgs)
	v.checkExtraArgs(path+".controllerManager.extraArgs", k.ControllerManager.ExtraArgs)
	v.checkExtraArgs(path+".scheduler.extraArgs", k.Scheduler.ExtraArgs)
	v.checkCertSANs(path)
	for _, gate := range sortedKeys(k.FeatureGates) {
		if !featureGate.MatchString(gate) {
			v.refuse(idInvalidValue, yamlfile.KeyPath(path+".featureGates", gate),
				strconv.Quote(gate)+" is not a valid feature gate name", "write the gate like InPlacePodVerticalScaling")
		}
	}
	v.checkComponents()
	v.checkManagedArgs()
	v.checkAudit(k.Audit)
	v.checkEncryption(k.Encryption)
	v.warnHardeningOverrides()
	c := k.Certificates
	ok := v.checkPositive(path+".certificates.validity", c.Validity)
	ok = v.checkPositive(path+".certificates.caValidity", c.CAValidity) && ok
	if ok && c.Validity != nil && c.CAValidity != nil && c.CAValidity.Duration < c.Validity.Duration {
		v.refuse(idInvalidDuration, path+".certificates.caValidity",
			fmt.Sprintf("certificates would be valid for %s, longer than their CA (%s)", c.Validity.Duration, c.CAValidity.Duration),
			"set caValidity to at least the value of validity")
	}
}

func (v *validator) checkVersion(path, version string) {
	if version == "" {
		return
	}
	if !versionSyntax.MatchString(version) {
		hint := "write it as vX.Y.Z, such as v1.37.1"
		if versionSyntax.MatchString("v" + version) {
			hint = "did you mean v" + version + "?"
		}
		v.refuse(idInvalidVersion, path, strconv.Quote(version)+" is not a Kubernetes version", hint)
		return
	}
	if v.supported == nil {
		return
	}
	if err := v.supported(version); err != nil {
		message, hint := err.Error(), "run 'slipway version --supported' to list the versions that can be installed"
		var why diag.List
		if errors.As(err, &why) && len(why) > 0 {
			message, hint = why[0].Message, why[0].Hint
		}
		v.refuse(idUnsupportedVersion, path, message, hint)
	}
}

func (v *validator) checkCertSANs(path string) {
	k := v.c.Spec.Kubernetes
	v.warnRepeated(path+".apiServer.certSANs", k.APIServer.CertSANs, addressMeaning)
	for i, name := range k.APIServer.CertSANs {
		_, err := netip.ParseAddr(name)
		wild := strings.TrimPrefix(name, "*.")
		if err != nil && len(validation.IsDNS1123Subdomain(wild)) > 0 {
			v.refuse(idInvalidAddress, yamlfile.IndexPath(path+".apiServer.certSANs", i),
				strconv.Quote(name)+" is neither an IP address nor a DNS name", "")
		}
	}
	for _, other := range []struct {
		name string
		v1alpha1.ComponentSettings
	}{{"controllerManager", k.ControllerManager}, {"scheduler", k.Scheduler}} {
		if len(other.CertSANs) > 0 {
			v.refuse(idConflictingFields, path+"."+other.name+".certSANs",
				"the "+other.name+" has no serving certificate that Slipway issues",
				"move names for the API server's certificate to apiServer.certSANs")
		}
	}
}

func (v *validator) checkExtraArgs(path string, args map[string]string) {
	for _, key := range sortedKeys(args) {
		if strings.ContainsFunc(args[key], unicode.IsControl) {
			v.refuse(idInvalidArgument, yamlfile.KeyPath(path, key), "the value has a line break or another control character",
				"write the argument as one line of text")
		}
		if argumentSyntax.MatchString(key) {
			continue
		}
		hint := "write the name of the flag, such as v or audit-log-path"
		if bare := strings.TrimLeft(key, "-"); bare != key && argumentSyntax.MatchString(bare) {
			hint = "remove the leading dashes: " + bare
		}
		v.refuse(idInvalidArgument, yamlfile.KeyPath(path, key), strconv.Quote(key)+" is not a valid argument name", hint)
	}
}
