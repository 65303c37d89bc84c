package apicheck

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec"
)

// A FileReader reads what a cluster of the command line uses on its machine.
type FileReader struct {
	// ReadFile returns the content of a file of at most MaxFileBytes.
	ReadFile func(path string) ([]byte, error)
	// ReadVariable returns the value of an environment variable.
	ReadVariable func(name string) (string, error)
}

// ConvertCluster returns a cluster of the command line as an object: each file, variable and password is
// a key of files, which the object does not name in spec.filesFrom yet. The paths of the cluster are
// absolute. The error is a diag.List of all files that cannot be read. Check finds what an object
// cannot have.
func ConvertCluster(c *v1alpha1.Cluster, from FileReader) (object *v1alpha1.Cluster, files map[string][]byte, err error) {
	v := &converter{from: from, keys: map[string]string{}, files: map[string][]byte{}}
	object = c.DeepCopy()
	v.convertFiles(reflect.ValueOf(&object.Spec))
	v.convertSecrets(reflect.ValueOf(&object.Spec))
	return object, v.files, v.found.Err()
}

// A converter collects the files of an object.
type converter struct {
	from FileReader
	// keys has the key of each file, variable and password.
	keys  map[string]string
	files map[string][]byte
	found diag.List
}

// convertFiles replaces the names of files.
func (v *converter) convertFiles(of reflect.Value) {
	kinds := map[string]kind{}
	for _, r := range rules {
		kinds[r.field] = r.kind
	}
	walkFields(of, "spec", func(field, path string, value reflect.Value) {
		if k := kinds[field]; k == fileName || k == fileOrURL {
			eachText(value, path, func(path string, text reflect.Value) {
				if name := text.String(); !spec.IsURL(name) {
					text.SetString(v.keyOf(path, name, filepath.Base(name), func() ([]byte, error) { return v.from.ReadFile(name) }))
				}
			})
		}
	})
}

// convertSecrets replaces secrets in the description and in variables by files.
func (v *converter) convertSecrets(of reflect.Value) {
	walkFields(of, "spec", func(_, path string, value reflect.Value) {
		if login, ok := value.Addr().Interface().(*v1alpha1.SSH); ok && login.Password != "" {
			password := login.Password
			key := v.keyOf(path+".password", "password "+password, "ssh-password", func() ([]byte, error) { return []byte(password), nil })
			login.Password, login.PasswordFrom = "", &v1alpha1.SecretSource{File: key}
		}
		source, ok := value.Interface().(*v1alpha1.SecretSource)
		if !ok || source == nil || source.Env == "" {
			return
		}
		name := source.Env
		source.File = v.keyOf(path, "$"+name, name, func() ([]byte, error) {
			text, err := v.from.ReadVariable(name)
			return []byte(text), err
		})
		source.Env = ""
	})
}

// keyOf returns the key of a file or variable. It reads the content when it gets a new key.
func (v *converter) keyOf(path, name, wanted string, read func() ([]byte, error)) string {
	if key, ok := v.keys[name]; ok {
		return key
	}
	content, err := read()
	if err == nil && len(content) > MaxFileBytes {
		err = fmt.Errorf("it has more than %d bytes", MaxFileBytes)
	}
	if err != nil {
		var named *fs.PathError
		if errors.As(err, &named) {
			err = named.Err // the message has the name already
		}
		hint := "make it a file that you can read, or remove it from the cluster"
		if strings.HasPrefix(name, "$") {
			hint = "set the variable, as for the other commands"
		}
		v.found = append(v.found, diag.Diagnostic{
			ID: idFileUnreadable, Severity: diag.Error, Path: path, Hint: hint,
			Message: quoteText(name) + " cannot become a file of an object: " + err.Error(),
		})
		return wanted
	}
	base := strings.Map(func(r rune) rune {
		if isKey(string(r)) || r == '.' {
			return r
		}
		return '-'
	}, wanted)
	if !isKey(base) {
		base = "file-" + strings.Trim(base, ".")
	}
	key := base
	for n := 2; v.files[key] != nil; n++ {
		key = base + "-" + strconv.Itoa(n)
	}
	if content == nil {
		content = []byte{}
	}
	v.keys[name], v.files[key] = key, content
	return key
}
