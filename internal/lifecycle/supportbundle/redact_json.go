package supportbundle

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// redactJSON returns a JSON value without secrets. The structure is kept.
func (r *redactor) redactJSON(raw []byte, indent string) []byte {
	v, ok := parseJSON(raw)
	if !ok {
		return r.redactText(raw)
	}
	return formatJSON(r.redactValue("", v), indent)
}

// parseJSON parses JSON and keeps numbers as written.
func parseJSON(raw []byte) (v any, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return v, dec.Decode(&v) == nil && !dec.More()
}

func formatJSON(v any, indent string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	_ = enc.Encode(v) // it was read from JSON
	return b.Bytes()
}

var (
	secretName = regexp.MustCompile(`(?i)^` + secretWord + `$`)
	secretFlag = regexp.MustCompile(`(?i)^-{1,2}` + secretWord + `$`)
)

// plainNames are fields whose name looks like a secret but whose value is not: the key
// of a label or a taint, the name of an object, a public key.
var plainNames = []string{"key", "topologyKey", "secretName", "hostKey", "tokenExpirationSeconds"}

// references are fields that refer to a secret elsewhere.
var references = []string{"name", "namespace", "path", "audience", "file", "env"}

// namesSecret reports whether the value of a field is a secret.
func namesSecret(name string) bool {
	return secretName.MatchString(name) && !slices.Contains(plainNames, name)
}

// redactValue returns a parsed JSON value without secrets: secrets in text, and values that are
// secrets according to their field, to a flag before them or to a name next to them.
func (r *redactor) redactValue(name string, v any) any {
	switch v := v.(type) {
	case string:
		if namesSecret(name) && !isHarmless(v) {
			return redacted
		}
		return string(r.redactText([]byte(v)))
	case json.Number:
		if namesSecret(name) {
			return redacted
		}
	case []any:
		flag := false
		for i, x := range v {
			word, isWord := x.(string)
			if v[i] = r.redactValue(name, x); flag && isWord && !strings.HasPrefix(word, "-") && !isHarmless(word) {
				v[i] = redacted
			}
			flag = isWord && secretFlag.MatchString(word)
		}
	case map[string]any:
		title, _ := v["name"].(string)
		for k, x := range v {
			v[k] = r.redactValue(k, x)
			text, is := x.(string)
			inSecret := is && namesSecret(name) && !slices.Contains(plainNames, k) && !slices.Contains(references, k) && !isHarmless(text)
			if inSecret || k == "value" && namesSecret(title) && x != nil {
				v[k] = redacted
			}
		}
	}
	return v
}

// redactObjects returns Kubernetes objects without the fields that may contain secrets of the
// user in any form: values of environment variables and headers, commands and arguments,
// and annotations.
func (r *redactor) redactObjects(v any) any {
	if list, ok := v.(map[string]any); ok {
		if items, ok := list["items"].([]any); ok {
			for i := range items {
				items[i] = r.redactObjects(items[i])
			}
			return v
		}
	}
	removeUserValues(v, isOwnPod(v))
	return r.redactValue("", v)
}

// isOwnPod reports whether an object is a static pod of the cluster itself, whose command
// is needed for support.
func isOwnPod(v any) bool {
	o, _ := v.(map[string]any)
	meta, _ := o["metadata"].(map[string]any)
	notes, _ := meta["annotations"].(map[string]any)
	_, mirror := notes["kubernetes.io/config.mirror"]
	return mirror && meta["namespace"] == "kube-system"
}

func removeUserValues(v any, own bool) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			removeUserValues(x, own)
		}
	case map[string]any:
		delete(v, "managedFields")
		for k, x := range v {
			switch list, _ := x.([]any); k {
			case "annotations":
				blankAnnotations(x)
			case "volumeAttributes", "options":
				blankValues(x)
			case "env", "httpHeaders":
				for _, e := range list {
					if e, ok := e.(map[string]any); ok && e["value"] != nil {
						e["value"] = redacted
					}
				}
			case "command", "args":
				if !own && len(list) > 0 {
					v[k] = []any{redacted}
				}
			}
			removeUserValues(v[k], own)
		}
	}
}

// plainAnnotations are annotations of Kubernetes, of cluster components and of Slipway that
// contain no secret. A "/" or "." at the end means a prefix.
var plainAnnotations = []string{
	"kubernetes.io/config.", "kubeadm.alpha.kubernetes.io/", "kubeadm.kubernetes.io/", "slipway.dev/", "flannel.alpha.coreos.com/",
	"node.alpha.kubernetes.io/ttl", "volumes.kubernetes.io/controller-managed-attach-detach", "deployment.kubernetes.io/revision",
	"deprecated.daemonset.template.generation", "kubectl.kubernetes.io/restartedAt", "kubectl.kubernetes.io/default-container",
	"control-plane.alpha.kubernetes.io/leader", "endpoints.kubernetes.io/last-change-trigger-time",
	"scheduler.alpha.kubernetes.io/critical-pod", "cluster-autoscaler.kubernetes.io/safe-to-evict",
	"prometheus.io/scrape", "prometheus.io/port",
}

func blankAnnotations(v any) {
	notes, _ := v.(map[string]any)
	for k := range notes {
		plain := func(p string) bool {
			return k == p || (strings.HasSuffix(p, "/") || strings.HasSuffix(p, ".")) && strings.HasPrefix(k, p)
		}
		if !slices.ContainsFunc(plainAnnotations, plain) {
			notes[k] = redacted
		}
	}
}

// blankValues removes all values of a map, because they may be anything.
func blankValues(v any) {
	values, _ := v.(map[string]any)
	for k := range values {
		values[k] = redacted
	}
}
