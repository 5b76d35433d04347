package connect

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// CheckKeyFile refuses a private key that others than its owner may read or write. On
// Windows the mode of a file says nothing of who may: its access list does.
func CheckKeyFile(file string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("others than its owner may use the private key %s (mode %04o); make it private with: chmod 600 %s", file, mode, file)
	}
	return nil
}

// certificatesIn reads the certificates of a file in PEM. All of it must be sound: what
// is left out would be missed later, and far from here.
func certificatesIn(file string, text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	rest := text
	for {
		block, after := pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("%s holds a damaged certificate: %w", file, err)
			}
			out = append(out, c)
		}
		rest = after
	}
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return nil, fmt.Errorf("%s is empty", file)
	case bytes.Contains(rest, []byte("-----BEGIN")):
		return nil, fmt.Errorf("%s is damaged: it holds PEM that cannot be read", file)
	case len(out) == 0:
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return out, nil
}

// authorityIn reads the authorities of a file.
func authorityIn(file string, text []byte) (*x509.CertPool, []*x509.Certificate, error) {
	certificates, err := certificatesIn(file, text)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	return pool, certificates, nil
}

// keyPairIn reads a certificate and its key.
func keyPairIn(certFile string, cert []byte, keyFile string, key []byte) (tls.Certificate, error) {
	if _, err := certificatesIn(certFile, cert); err != nil {
		return tls.Certificate{}, err
	}
	if len(bytes.TrimSpace(key)) == 0 {
		return tls.Certificate{}, fmt.Errorf("%s is empty", keyFile)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the private key %s cannot be used with the certificate %s: %w", keyFile, certFile, err)
	}
	return pair, nil
}

// errOutOfTime is a certificate whose time is over or has not come.
var errOutOfTime = errors.New("it must be replaced, or the clock of this machine put right")

// inTime refuses a certificate whose time is over or has not come.
func inTime(file string, c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate of %q in %s has expired on %s; %w", c.Subject.CommonName, file,
			c.NotAfter.UTC().Format(time.RFC3339), errOutOfTime)
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate of %q in %s is not valid before %s; %w", c.Subject.CommonName,
			file, c.NotBefore.UTC().Format(time.RFC3339), errOutOfTime)
	}
	return nil
}

// oneInTime refuses authorities of which none is of use now.
func oneInTime(file string, certificates []*x509.Certificate, now time.Time) error {
	var first error
	for _, c := range certificates {
		err := inTime(file, c, now)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}
