package apicheck

import (
	"reflect"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// A kind selects the check of a field.
type kind int

const (
	// fileName is a file: in an object, a key of a source.
	fileName kind = iota + 1
	// fileOrURL is a file, or a URL from which the server downloads.
	fileOrURL
	// variable is an environment variable.
	variable
	// agentSwitch is true if the login uses the SSH agent.
	agentSwitch
	// address is an IP address or host name to which the server connects.
	address
	// serverURL is a URL to which the server connects.
	serverURL
	// bundleSource is a bundle: a path, or a reference in a registry.
	bundleSource
	// inlineKey is a key, but the command line also accepts the name of its file.
	inlineKey
)

// A rule has the check of one field of the API types.
type rule struct {
	field   string // the type and the JSON name: "SSH.privateKeyFile"
	kind    kind
	content string // of a file, for people
}

// rules lists each field with which the command line reads something on its machine, or connects
// from it. A test compares it with the API types.
var rules = []rule{
	{"SSH.privateKeyFile", fileName, "private key"},
	{"SSH.agent", agentSwitch, ""},
	{"Bastion.address", address, ""},
	{"Bastion.privateKeyFile", fileName, "private key"},
	{"SecretSource.file", fileName, "secret"},
	{"SecretSource.env", variable, ""},
	{"Host.address", address, ""},
	{"Host.internalAddress", address, ""},
	{"ControlPlaneEndpoint.domain", address, ""},
	{"ControlPlaneEndpoint.address", address, ""},
	{"Audit.policyFile", fileName, "audit policy"},
	{"ExternalEtcd.caFile", fileName, "CA certificate"},
	{"ExternalEtcd.certFile", fileName, "certificate"},
	{"ExternalEtcd.keyFile", fileName, "private key"},
	{"SSHCopy.address", address, ""},
	{"S3Copy.endpoint", serverURL, ""},
	{"S3Copy.caFile", fileName, "CA certificate"},
	{"RegistryAuth.caFile", fileName, "CA certificate"},
	{"PrivateRegistry.certFile", fileName, "certificate"},
	{"PrivateRegistry.keyFile", fileName, "private key"},
	{"PrivateRegistry.caFile", fileName, "CA certificate"},
	{"Hook.script", fileName, "script"},
	{"Hook.materials", fileName, "file"},
	{"Addon.manifests", fileOrURL, "manifest"},
	{"Addon.valuesFiles", fileName, "values file"},
	{"Chart.path", fileName, "chart archive"},
	{"Chart.repository", serverURL, ""},
	{"ClusterSpec.bundle", bundleSource, ""},
	{"ClusterSpec.bundleKeys", inlineKey, ""},
}

// checkFields checks each field of the object that has a rule.
func (k *checker) checkFields() {
	byField := make(map[string]rule, len(rules))
	for _, r := range rules {
		byField[r.field] = r
	}
	walkFields(reflect.ValueOf(&k.cluster.Spec), "spec", func(field, path string, v reflect.Value) {
		r, ok := byField[field]
		if !ok {
			return
		}
		if r.kind == agentSwitch {
			k.checkAgent(path, v)
			return
		}
		eachText(v, path, func(path string, text reflect.Value) { k.checkText(r, path, text.String()) })
	})
}

// checkText checks a text that is not empty: Validate requires fields.
func (k *checker) checkText(r rule, path, text string) {
	switch r.kind {
	case fileName:
		k.checkFileName(r, path, text)
	case fileOrURL:
		k.checkManifest(r, path, text)
	case variable:
		k.refuse(idEnvironment, path, "an object cannot use environment variables: they belong to the server",
			"store the secret in a Secret of "+pathFilesFrom+", and write {file: KEY}")
	case address:
		k.checkAddress(path, text)
	case serverURL:
		k.checkURL(path, text)
	case bundleSource:
		k.checkBundle(path, text)
	case inlineKey:
		k.checkInlineKey(path, text)
	}
}

// walkFields calls do for each field of the API types below v, also for fields without a value.
func walkFields(v reflect.Value, path string, do func(field, path string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		walkFields(v.Elem(), path, do) // nothing is below a nil pointer
	case reflect.Slice:
		for i := range v.Len() {
			walkFields(v.Index(i), yamlfile.IndexPath(path, i), do)
		}
	case reflect.Struct:
		if v.Type().PkgPath() != reflect.TypeFor[v1alpha1.Cluster]().PkgPath() {
			return
		}
		for i := range v.NumField() {
			name := jsonName(v.Type().Field(i))
			at := yamlfile.JoinPath(path, name)
			do(v.Type().Name()+"."+name, at, v.Field(i))
			walkFields(v.Field(i), at, do)
		}
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// eachText calls do for a text, or for each text of a list, unless it is empty.
func eachText(v reflect.Value, path string, do func(path string, text reflect.Value)) {
	switch v.Kind() {
	case reflect.String:
		if v.Len() > 0 {
			do(path, v)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachText(v.Index(i), yamlfile.IndexPath(path, i), do)
		}
	}
}
