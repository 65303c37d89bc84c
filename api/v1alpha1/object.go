package v1alpha1

// Object is a JSON object whose fields this API does not define, such as the
// configuration of a component. Its values are decoded JSON.
type Object map[string]any

// DeepCopy returns a copy of o.
func (o Object) DeepCopy() Object {
	if o == nil {
		return nil
	}
	return copyJSON(map[string]any(o)).(map[string]any)
}

// DeepCopyInto writes a copy of o to out.
func (o Object) DeepCopyInto(out *Object) { *out = o.DeepCopy() }

// copyJSON returns a copy of a decoded JSON value. Numbers of every Go type are accepted,
// because callers also write such values in Go.
func copyJSON(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if value == nil {
			return value
		}
		out := make(map[string]any, len(value))
		for k, v := range value {
			out[k] = copyJSON(v)
		}
		return out
	case []any:
		if value == nil {
			return value
		}
		out := make([]any, len(value))
		for i, v := range value {
			out[i] = copyJSON(v)
		}
		return out
	}
	return value
}
