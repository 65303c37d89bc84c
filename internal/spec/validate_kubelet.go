package spec

import (
	_ "embed"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// kubeletFieldsData is made by hack/kubelet-fields.
//
//go:embed data/kubelet-fields.txt
var kubeletFieldsData string

// kubeletFields has the fields of KubeletConfiguration by their paths:
// "authentication.webhook.enabled", "registerWithTaints[].key".
type kubeletFields struct {
	fields map[string]kubeletField
	newest int // the minor version of the newest known kubelet
}

type kubeletField struct {
	kind  string // as in Go; "[]" is a list, "{}" a mapping to the following type
	since int    // the minor version that added it, 0 for always
}

func readKubeletFields() kubeletFields {
	out := kubeletFields{fields: map[string]kubeletField{}}
	for line := range strings.Lines(kubeletFieldsData) {
		words := strings.Fields(line)
		switch {
		case len(words) == 3 && words[0] == "#" && words[1] == "newest":
			out.newest, _ = strconv.Atoi(words[2]) // built-in data; a test reads it
		case len(words) < 2 || words[0] == "#":
		case len(words) == 3:
			since, _ := strconv.Atoi(words[2])
			out.fields[words[0]] = kubeletField{words[1], since}
		default:
			out.fields[words[0]] = kubeletField{kind: words[1]}
		}
	}
	return out
}

// listFieldsBelow returns the names of the fields in an object.
func (k kubeletFields) listFieldsBelow(path string) []string {
	var out []string
	for _, name := range sortedKeys(k.fields) {
		if rest, ok := strings.CutPrefix(name, path); ok && !strings.ContainsAny(rest, ".[{") {
			out = append(out, rest)
		}
	}
	return out
}

// checkKubeletConfig checks names and types: with an error in them no kubelet would start. It
// rejects only values with which no kubelet starts; the kubelet itself decides about all
// others.
func (v *validator) checkKubeletConfig(path string, config map[string]any) {
	if len(config) == 0 {
		return
	}
	minor := 0
	if m := versionSyntax.FindStringSubmatch(v.c.Spec.Kubernetes.Version); m != nil {
		minor, _ = strconv.Atoi(m[2]) // digits by the expression
	}
	c := kubeletChecker{validator: v, known: readKubeletFields(), minor: minor}
	for _, key := range []string{"apiVersion", "kind"} {
		if _, ok := config[key]; ok {
			v.refuse(idUnknownKubelet, yamlfile.KeyPath(path, key), key+" cannot be set here", "leave the field out: Slipway writes it")
		}
	}
	c.checkObject(path, "", config)
}

type kubeletChecker struct {
	*validator
	known kubeletFields
	minor int
}

// checkObject checks the keys of an object; prefix is the prefix of its field paths.
func (c kubeletChecker) checkObject(path, prefix string, object map[string]any) {
	for _, key := range sortedKeys(object) {
		f, known := c.known.fields[prefix+key]
		at := yamlfile.KeyPath(path, key)
		switch {
		case prefix == "" && slices.Contains([]string{"apiVersion", "kind"}, key):
		case !known:
			c.reportUnknown(at, prefix, key)
		case c.minor > 0 && c.minor < f.since:
			c.refuse(idUnknownKubelet, at, fmt.Sprintf("%s needs Kubernetes v1.%d or later", key, f.since),
				"leave the field out for "+c.c.Spec.Kubernetes.Version)
		default:
			c.checkValue(at, prefix+key, f.kind, object[key])
		}
	}
}

// reportUnknown rejects a key, unless the kubelet is newer than all known versions: then it may
// have the field.
func (c kubeletChecker) reportUnknown(at, prefix, key string) {
	where := "KubeletConfiguration"
	if prefix != "" {
		where = strings.TrimSuffix(prefix, ".")
	}
	message := where + " has no field " + strconv.Quote(key)
	names := c.known.listFieldsBelow(prefix)
	hint := diag.DidYouMean(key, names)
	if hint == "" && len(names) <= 12 {
		hint = "use one of these fields: " + strings.Join(names, ", ")
	}
	if c.minor > c.known.newest {
		c.warn(idUnknownKubelet,
			at, fmt.Sprintf("%s in the versions known to this Slipway; the newest one is v1.%d", message, c.known.newest), hint)
		return
	}
	c.refuse(idUnknownKubelet, at, message, hint)
}

// checkValue checks the type of a value. Null is the default of the kubelet.
func (c kubeletChecker) checkValue(at, path, kind string, x any) {
	if x == nil || kind == "any" {
		return
	}
	if inner, ok := strings.CutPrefix(kind, "[]"); ok {
		list, ok := x.([]any)
		if !ok {
			c.reportWrongType(at, reflect.TypeFor[[]any](), x)
		}
		for i, item := range list {
			c.checkValue(yamlfile.IndexPath(at, i), path+"[]", inner, item)
		}
		return
	}
	object, isObject := x.(map[string]any)
	if inner, ok := strings.CutPrefix(kind, "{}"); ok {
		if !isObject {
			c.reportWrongType(at, reflect.TypeFor[map[string]any](), x)
		}
		for _, key := range sortedKeys(object) {
			c.checkValue(yamlfile.KeyPath(at, key), path+"{}", inner, object[key])
		}
		return
	}
	switch {
	case kind == "object" && isObject:
		c.checkObject(at, path+".", object)
	case kind == "object":
		c.reportWrongType(at, reflect.TypeFor[map[string]any](), x)
	default:
		c.checkScalar(at, path, kind, x)
	}
}

func (c kubeletChecker) checkScalar(at, path, kind string, x any) {
	text, isText := x.(string)
	number, isNumber := asNumber(x)
	switch kind {
	case "string":
		if !isText {
			c.reportWrongType(at, reflect.TypeFor[string](), x)
		}
	case "bool":
		if _, ok := x.(bool); !ok {
			c.reportWrongType(at, reflect.TypeFor[bool](), x)
		}
	case "duration":
		if _, err := time.ParseDuration(text); !isText || err != nil {
			c.reportWrongType(at, reflect.TypeFor[metav1.Duration](), x)
		}
	case "quantity":
		if isText {
			if _, err := resource.ParseQuantity(text); err == nil {
				return
			}
		}
		if !isNumber {
			c.refuse(idWrongType, at, "found "+foundValue(x)+", expected a quantity", "write a number with a unit, such as 512Mi")
		}
	case "float64":
		if !isNumber {
			c.refuse(idWrongType, at, "found "+foundValue(x)+", expected a number", "remove the quotes")
		}
	default: // int32, uint32…
		low, high := integerBounds(kind)
		if r, ok := kubeletBounds()[path]; ok {
			low, high = r[0], min(high, r[1])
		}
		if !isNumber || number != math.Trunc(number) {
			c.reportWrongType(at, reflect.TypeFor[int64](), x)
		} else if number < low || number > high {
			c.refuse(idWrongType, at, fmt.Sprintf("found %s, expected a number %s", foundValue(x), boundsFor(number, low, high)), "")
		}
	}
}

// boundsFor describes the numbers from low to high, for a number that is outside. The largest
// number of a type does not help if the number is too small.
func boundsFor(number, low, high float64) string {
	if number < low && high >= math.MaxInt32 {
		return fmt.Sprintf("of at least %.0f", low)
	}
	return fmt.Sprintf("between %.0f and %.0f", low, high)
}

// kubeletBounds returns the minimum and maximum of whole numbers with which a kubelet
// starts (its ValidateKubeletConfiguration). For some, 0 is the default.
func kubeletBounds() map[string][2]float64 {
	const port, percent = 65535, 100
	most := math.Inf(1)
	return map[string][2]float64{
		"maxPods": {0, most}, "podsPerCore": {0, most}, "podPidsLimit": {-1, most}, "oomScoreAdj": {-1000, 1000},
		"imageGCHighThresholdPercent": {0, percent}, "imageGCLowThresholdPercent": {0, percent},
		"maxParallelImagePulls": {1, most}, "containerLogMaxFiles": {2, most}, "containerLogMaxWorkers": {1, most},
		"port": {0, port}, "readOnlyPort": {0, port}, "healthzPort": {0, port}, "maxOpenFiles": {0, most},
		"registryPullQPS": {0, most}, "registryBurst": {0, most}, "eventRecordQPS": {0, most}, "eventBurst": {0, most},
		"kubeAPIBurst": {0, most}, "nodeLeaseDurationSeconds": {0, most}, "nodeStatusMaxImages": {-1, most},
	}
}

// integerBounds returns the minimum and maximum of an integer type.
func integerBounds(kind string) (low, high float64) {
	bits, _ := strconv.Atoi(strings.TrimLeft(kind, "uint")) // "int32"
	if strings.HasPrefix(kind, "u") {
		return 0, math.Exp2(float64(bits)) - 1
	}
	return -math.Exp2(float64(bits - 1)), math.Exp2(float64(bits-1)) - 1
}

func asNumber(x any) (float64, bool) {
	switch x := x.(type) {
	case int64:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}

// reportWrongType reports the found and the expected type, and how to write the value.
func (c kubeletChecker) reportWrongType(at string, t reflect.Type, x any) {
	want, hint := yamlfile.ExpectedType(t)
	if _, ok := asNumber(x); ok && t.Kind() == reflect.String {
		hint = fmt.Sprintf("put it in quotes: \"%v\"", x)
	}
	if text, ok := x.(string); ok && t.Kind() == reflect.Slice {
		hint = "write a list: [" + text + "]"
	} else if ok && yamlfile.QuotedHint(text, t) != "" {
		hint = yamlfile.QuotedHint(text, t)
	}
	c.refuse(idWrongType, at, "found "+foundValue(x)+", expected "+want, hint)
}

// foundValue describes a decoded value for people.
func foundValue(x any) string {
	name := "a number"
	switch x.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		name = "text"
	case bool:
		name = "true or false"
	}
	text := []rune(fmt.Sprint(x))
	if len(text) > 40 {
		text = append(text[:40], '…')
	}
	return name + " (" + strconv.Quote(string(text)) + ")"
}
