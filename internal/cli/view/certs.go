package view

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"slipway.dev/slipway/internal/lifecycle/inspect"
)

// WriteCertificates lists a cluster's certificates, the first to expire first. It writes
// the verdict first and the next command last.
func WriteCertificates(w io.Writer, c *inspect.Certificates, now time.Time, s Style) error {
	p := paint(s.Colour)
	code := map[inspect.CertificateVerdict]string{
		inspect.CertificatesFine: green, inspect.CertificatesExpire: yellow,
		inspect.CertificatesExpired: red, inspect.CertificatesUnknown: yellow,
	}[c.Verdict]
	fmt.Fprintf(w, "Certificates of %s: %s: %s\n", p.in(bold, c.Name), p.in(code, string(c.Verdict)), c.Summary)
	if len(c.Warnings) > 0 {
		fmt.Fprintln(w)
		WriteDiagnostics(w, c.Warnings, s)
	}
	var rows [][]string
	for _, cert := range c.Certificates {
		rows = append(rows,
			[]string{formatExpiry(cert.Expires, now), formatDate(cert.Expires), cert.Host, cert.Name, describeSigner(cert), cert.Path})
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		if err := WriteTable(w, []string{"EXPIRES IN", "ON", "HOST", "CERTIFICATE", "SIGNED BY", "FILE"}, rows); err != nil {
			return err
		}
	}
	if err := writeAutoRenewals(w, c.Automatic, now); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nNext: %s\n", c.Next)
	return err
}

// writeAutoRenewals writes a table of the hosts' automatic certificate renewal.
func writeAutoRenewals(w io.Writer, list []inspect.AutoRenewal, now time.Time) error {
	if len(list) == 0 {
		return nil
	}
	var rows [][]string
	for _, a := range list {
		row := []string{a.Host, "off", "-", "-", "-"}
		if a.Active {
			row[1] = "on"
		}
		if a.AutoOutcome != nil {
			row[2], row[3] = FormatAge(max(now.Sub(a.At), 0))+" ago", string(a.Result)
			if !a.RenewedAt.IsZero() {
				row[4] = formatDate(a.RenewedAt)
			}
		}
		rows = append(rows, row)
	}
	fmt.Fprintln(w)
	return WriteTable(w, []string{"HOST", "AUTOMATIC RENEWAL", "LAST CHECK", "RESULT", "LAST RENEWED"}, rows)
}

func formatExpiry(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return formatTimeLeft(at.Sub(now))
}

func formatDate(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Format(time.DateOnly)
}

// describeSigner names the CA that signed a certificate, and notes if the kubelet renews
// the certificate.
func describeSigner(c inspect.Certificate) string {
	switch {
	case c.CA:
		return "itself"
	case c.Rotates:
		return cmp.Or(c.Authority, "-") + " (renewed by kubelet)"
	}
	return cmp.Or(c.Authority, "-")
}
