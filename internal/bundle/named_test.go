package bundle

import (
	"os"
	"path/filepath"
	"testing"
)

// TestNamedHosts_ListsHostsOfCredentialsAndCluster lists the hosts whose token services a
// user has accepted: the hosts in the credentials file and in the cluster file.
func TestNamedHosts_ListsHostsOfCredentialsAndCluster(t *testing.T) {
	write := func(dir, text string) string {
		path := filepath.Join(dir, "config.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("DOCKER_CONFIG", home)
	write(home, `{"auths":{"docker.example.com":{"auth":"dTpw"}}}`)
	file := write(t.TempDir(), `{"auths":{"registry.example.com":{"auth":"dTpw"},"tokens.example.com":{},"https://old.example.com":{}}}`)
	for name, tt := range map[string]struct {
		at   Registry
		host string
		want bool
	}{
		"in the file":               {Registry{Credentials: file}, "tokens.example.com", true},
		"in the file, as a URL":     {Registry{Credentials: file}, "old.example.com", true},
		"not in the file":           {Registry{Credentials: file}, "evil.example", false},
		"another port":              {Registry{Credentials: file}, "tokens.example.com:444", false},
		"docker's, not in the file": {Registry{Credentials: file}, "docker.example.com", false},
		"docker's":                  {Registry{}, "docker.example.com", true},
		"not docker's":              {Registry{}, "evil.example", false},
		"in the cluster's file":     {Registry{Logins: []Login{{Registry: "tokens.example.com"}}}, "tokens.example.com", true},
		"not in the cluster's file": {Registry{Logins: []Login{{Registry: "tokens.example.com"}}}, "evil.example", false},
	} {
		t.Run(name, func(t *testing.T) {
			at := tt.at.forHost("registry.example.com")
			keys, err := at.readKeychain()
			if err != nil {
				t.Fatal(err)
			}
			if got := at.isNamedFunc(keys)(tt.host); got != tt.want {
				t.Errorf("%s is named: %v", tt.host, got)
			}
		})
	}
}
