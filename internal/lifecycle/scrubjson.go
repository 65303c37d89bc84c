package lifecycle

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// json is a value without secrets, as JSON: what is an object stays one.
func (s *scrubber) json(raw []byte, indent string) []byte {
	v, ok := parsed(raw)
	if !ok {
		return s.text(raw)
	}
	return asJSON(s.value("", v), indent)
}

// parsed is JSON with numbers as they are written.
func parsed(raw []byte) (v any, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return v, dec.Decode(&v) == nil && !dec.More()
}

func asJSON(v any, indent string) []byte {
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

// plainNames are fields with the name of a secret that hold none: the key of a
// label or a taint, the name of an object, a public key.
var plainNames = []string{"key", "topologyKey", "secretName", "hostKey", "tokenExpirationSeconds"}

// references are fields by which a secret is found that is elsewhere.
var references = []string{"name", "namespace", "path", "audience", "file", "env"}

// namesSecret says that the value of a field is a secret.
func namesSecret(name string) bool {
	return secretName.MatchString(name) && !slices.Contains(plainNames, name)
}

// value is one that was read from JSON, without secrets: those in texts, and
// those that the name of a field, a flag before them or a name beside them
// tells of.
func (s *scrubber) value(name string, v any) any {
	switch v := v.(type) {
	case string:
		if namesSecret(name) && !harmless(v) {
			return redacted
		}
		return string(s.text([]byte(v)))
	case json.Number:
		if namesSecret(name) {
			return redacted
		}
	case []any:
		flag := false
		for i, x := range v {
			word, isWord := x.(string)
			if v[i] = s.value(name, x); flag && isWord && !strings.HasPrefix(word, "-") && !harmless(word) {
				v[i] = redacted
			}
			flag = isWord && secretFlag.MatchString(word)
		}
	case map[string]any:
		title, _ := v["name"].(string)
		for k, x := range v {
			v[k] = s.value(k, x)
			text, is := x.(string)
			inSecret := is && namesSecret(name) && !slices.Contains(plainNames, k) && !slices.Contains(references, k) && !harmless(text)
			if inSecret || k == "value" && namesSecret(title) && x != nil {
				v[k] = redacted
			}
		}
	}
	return v
}

// objects are Kubernetes' objects without what may hold secrets of the user,
// which nobody can tell by its looks: values of environment variables and
// headers, how programs are called, and what others noted down.
func (s *scrubber) objects(v any) any {
	if list, ok := v.(map[string]any); ok {
		if items, ok := list["items"].([]any); ok {
			for i := range items {
				items[i] = s.objects(items[i])
			}
			return v
		}
	}
	strip(v, ownPod(v))
	return s.value("", v)
}

// ownPod says that an object is a static pod of the cluster's own: how it is
// called is what whoever helps has to know.
func ownPod(v any) bool {
	o, _ := v.(map[string]any)
	meta, _ := o["metadata"].(map[string]any)
	notes, _ := meta["annotations"].(map[string]any)
	_, mirror := notes["kubernetes.io/config.mirror"]
	return mirror && meta["namespace"] == "kube-system"
}

func strip(v any, own bool) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			strip(x, own)
		}
	case map[string]any:
		delete(v, "managedFields")
		for k, x := range v {
			switch list, _ := x.([]any); k {
			case "annotations":
				blankNotes(x)
			case "volumeAttributes", "options":
				blankAll(x)
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
			strip(v[k], own)
		}
	}
}

// plainNotes are annotations of Kubernetes, of what comes with a cluster, and
// ours, that hold no secret; "/" at the end means all that begin so.
var plainNotes = []string{
	"kubernetes.io/config.", "kubeadm.alpha.kubernetes.io/", "kubeadm.kubernetes.io/", "slipway.dev/", "flannel.alpha.coreos.com/",
	"node.alpha.kubernetes.io/ttl", "volumes.kubernetes.io/controller-managed-attach-detach", "deployment.kubernetes.io/revision",
	"deprecated.daemonset.template.generation", "kubectl.kubernetes.io/restartedAt", "kubectl.kubernetes.io/default-container",
	"control-plane.alpha.kubernetes.io/leader", "endpoints.kubernetes.io/last-change-trigger-time",
	"scheduler.alpha.kubernetes.io/critical-pod", "cluster-autoscaler.kubernetes.io/safe-to-evict", "prometheus.io/scrape", "prometheus.io/port",
}

func blankNotes(v any) {
	notes, _ := v.(map[string]any)
	for k := range notes {
		plain := func(p string) bool {
			return k == p || (strings.HasSuffix(p, "/") || strings.HasSuffix(p, ".")) && strings.HasPrefix(k, p)
		}
		if !slices.ContainsFunc(plainNotes, plain) {
			notes[k] = redacted
		}
	}
}

// blankAll takes the values of a map that may hold anything.
func blankAll(v any) {
	values, _ := v.(map[string]any)
	for k := range values {
		values[k] = redacted
	}
}
