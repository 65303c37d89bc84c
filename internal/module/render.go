package module

import (
	"bytes"
	"fmt"
	"io/fs"
	"text/template"
)

// Render fills in a module's template, a file below "templates".
func Render(files fs.FS, name string, data any) ([]byte, error) {
	t, err := template.ParseFS(files, "templates/"+name)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}
	return b.Bytes(), nil
}
