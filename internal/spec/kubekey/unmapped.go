package kubekey

import (
	"reflect"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/spec/yamlfile"
)

// reportUnmapped reports every field that is written and not mapped, according to the table. An
// empty value (false, zero) is not a loss.
func (c *conversion) reportUnmapped() {
	c.visitValue(reflect.ValueOf(c.in), "")
}

func (c *conversion) visitValue(v reflect.Value, path string) {
	if f, ok := fields[yamlfile.DocumentedPath(path)]; ok {
		if path == "status" || f.fate == mapped || isEmpty(v) {
			return
		}
		switch f.fate {
		case dropped:
			c.reportDropped(path, f.text)
		case later:
			c.reportChangedMeaning(idNotSupportedYet, path, nearestField(path), f.text)
		default:
			c.reportChangedMeaning(idLost, path, nearestField(path), f.text)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			c.visitValue(v.Field(i), joinPath(path, name))
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.visitValue(v.Index(i), path+"["+strconv.Itoa(i)+"]")
		}
	case reflect.Map:
		byName := map[string]reflect.Value{}
		for it := v.MapRange(); it.Next(); {
			byName[it.Key().String()] = it.Value()
		}
		for _, key := range sortedKeys(byName) {
			c.visitValue(byName[key], path+"["+key+"]")
		}
	}
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// isEmpty reports whether a value is empty or false.
func isEmpty(v reflect.Value) bool {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		return isEmpty(v.Elem())
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.String:
		return strings.TrimSpace(v.String()) == ""
	}
	return v.IsZero()
}

// nearestField returns the Slipway field for a comment about a KubeKey field: the section with
// the same name, if there is one.
func nearestField(path string) string {
	for _, section := range []string{
		"spec.hosts", "spec.etcd", "spec.dns", "spec.kubernetes", "spec.network",
		"spec.registry", "spec.system",
	} {
		if yamlfile.IsWithin(path, section) {
			return section
		}
	}
	return "spec"
}
