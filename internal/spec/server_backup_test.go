package spec

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestCheckCopyTargets_ReportsPathsOfItsFields(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	from := func() *v1alpha1.SecretSource { return &v1alpha1.SecretSource{File: "key"} }
	s3 := func() *v1alpha1.S3Copy {
		return &v1alpha1.S3Copy{Endpoint: "https://s3.example.com", Bucket: "backups", AccessKeyFrom: from(), SecretKeyFrom: from()}
	}
	const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	for _, tc := range []struct {
		name, reason string
		backup       v1alpha1.EtcdBackup
		want         []string
	}{
		{
			"valid", "each field is complete",
			v1alpha1.EtcdBackup{Recipients: []string{recipient}, Copies: []v1alpha1.EtcdCopy{{Name: "s3", S3: s3()}}},
			nil,
		},
		{
			"no recipient", "copies leave the machine",
			v1alpha1.EtcdBackup{Copies: []v1alpha1.EtcdCopy{{Name: "s3", S3: s3()}}},
			[]string{"recipients: missing-field"},
		},
		{
			"no target", "a copy without a target goes nowhere",
			v1alpha1.EtcdBackup{Recipients: []string{"age1"}, Copies: []v1alpha1.EtcdCopy{{Name: "s3"}}},
			[]string{"recipients[0]: invalid-recipient", "copies[0]: missing-field"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, d := range CheckCopyTargets(&tc.backup, Paths{Dir: dir}) {
				got = append(got, d.Path+": "+d.ID)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
			if to := tc.backup.Copies[0].S3; to != nil && (to.AccessKeyFrom.File != filepath.Join(dir, "key") || to.Region != DefaultS3Region) {
				t.Errorf("the target has no absolute paths or defaults: %+v", to)
			}
		})
	}
}
