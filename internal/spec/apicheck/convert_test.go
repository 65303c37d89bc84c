package apicheck

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

// readerOf returns a reader of files and variables.
func readerOf(files, variables map[string]string) FileReader {
	return FileReader{
		ReadFile: func(path string) ([]byte, error) {
			text, ok := files[path]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
			}
			return []byte(text), nil
		},
		ReadVariable: func(name string) (string, error) {
			text, ok := variables[name]
			if !ok {
				return "", errors.New("the variable is not set")
			}
			return text, nil
		},
	}
}

func TestConvertCluster_ReplacesFilesAndVariables(t *testing.T) {
	c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{
		SSH: v1alpha1.SSH{PrivateKeyFile: "/home/a/.ssh/id", PassphraseFrom: &v1alpha1.SecretSource{Env: "PASSPHRASE"}},
		Hosts: []v1alpha1.Host{
			{Name: "cp1", Address: "192.0.2.1"},
			{Name: "w1", Address: "192.0.2.2", SSH: v1alpha1.SSH{PrivateKeyFile: "/srv/w1/id"}},
			{Name: "w2", Address: "192.0.2.3", SSH: v1alpha1.SSH{PrivateKeyFile: "/home/a/.ssh/id"}},
			{Name: "w3", Address: "192.0.2.4", SSH: v1alpha1.SSH{Password: "parrot"}},
		},
		Addons: []v1alpha1.Addon{{Name: "x", Manifests: []string{"https://example.com/a.yaml", "/etc/my manifests.yaml", "/etc/..data"}}},
	}}
	was := c.DeepCopy()
	got, files, err := ConvertCluster(c, readerOf(map[string]string{
		"/home/a/.ssh/id": "key", "/srv/w1/id": "other key", "/etc/my manifests.yaml": "", "/etc/..data": "x",
	}, map[string]string{"PASSPHRASE": "word"}))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(was, c); d != "" {
		t.Errorf("the cluster was changed (-before +after):\n%s", d)
	}
	want := was.DeepCopy()
	want.Spec.SSH.PrivateKeyFile, want.Spec.SSH.PassphraseFrom = "id-2", &v1alpha1.SecretSource{File: "PASSPHRASE"}
	want.Spec.Hosts[1].SSH.PrivateKeyFile, want.Spec.Hosts[2].SSH.PrivateKeyFile = "id", "id-2"
	want.Spec.Hosts[3].SSH = v1alpha1.SSH{PasswordFrom: &v1alpha1.SecretSource{File: "ssh-password"}}
	want.Spec.Addons[0].Manifests = []string{"https://example.com/a.yaml", "my-manifests.yaml", "file-data"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("object (-want +got):\n%s", d)
	}
	wantFiles := map[string][]byte{
		"id": []byte("other key"), "id-2": []byte("key"), "PASSPHRASE": []byte("word"),
		"ssh-password": []byte("parrot"), "my-manifests.yaml": {}, "file-data": []byte("x"),
	}
	if d := cmp.Diff(wantFiles, files); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	got.Spec.FilesFrom = []v1alpha1.FilesSource{{SecretRef: &v1alpha1.LocalReference{Name: "files"}}}
	for _, d := range Check(got, []Source{{Found: true, Data: files}}) {
		t.Errorf("the object is refused: %v", d)
	}
}

func TestConvertCluster_ReportsWhatItCannotRead(t *testing.T) {
	c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{
		SSH:   v1alpha1.SSH{PrivateKeyFile: "/large", PasswordFrom: &v1alpha1.SecretSource{Env: "UNSET"}},
		Hosts: []v1alpha1.Host{{Name: "cp1", SSH: v1alpha1.SSH{PrivateKeyFile: "/missing"}}},
	}}
	_, _, err := ConvertCluster(c, readerOf(map[string]string{"/large": string(make([]byte, MaxFileBytes+1))}, nil))
	hint := " [object-file-unreadable]\n    hint: make it a file that you can read, or remove it from the cluster"
	want := strings.Join([]string{
		`spec.hosts[0].ssh.privateKeyFile: "/missing" cannot become a file of an object: no such file or directory` + hint,
		`spec.ssh.privateKeyFile: "/large" cannot become a file of an object: it has more than 4194304 bytes` + hint,
		`spec.ssh.passwordFrom: "$UNSET" cannot become a file of an object: the variable is not set [object-file-unreadable]
    hint: set the variable, as for the other commands`,
	}, "\n")
	if err == nil {
		t.Fatal("no error")
	}
	if d := cmp.Diff(want, err.Error()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
