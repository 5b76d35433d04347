package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// When the agents for Windows are signed.
const (
	signNever  = "never"
	ifPossible = "if-possible" // if the environment has a key
	always     = "always"
)

// The key of the environment, and what goes with it.
const (
	envPKCS12       = "GPU_SIGN_PKCS12"        // file with key and certificates
	envModule       = "GPU_SIGN_PKCS11_MODULE" // library of the token that has the key
	envKey          = "GPU_SIGN_PKCS11_KEY"    // PKCS#11 URI of the key in it
	envCertificates = "GPU_SIGN_CERTIFICATES"  // file with the certificates for it, in PEM
	envPassword     = "GPU_SIGN_PASSWORD"      // of the file or the token
	envTimestamp    = "GPU_SIGN_TIMESTAMP_URL" // time-stamp authority, or "none"
)

// A signature without a time stamp ends with its certificate.
const (
	defaultTimestamp = "http://timestamp.digicert.com"
	noTimestamp      = "none"
)

// errNoKey is an environment without a key.
var errNoKey = fmt.Errorf("there is no key to sign with: set %s, or %s with %s and %s", envPKCS12, envModule, envKey, envCertificates)

// signing are the arguments that say what to sign with.
func signing() ([]string, error) {
	var args []string
	switch {
	case os.Getenv(envPKCS12) != "":
		args = []string{"-pkcs12", os.Getenv(envPKCS12)}
	case os.Getenv(envModule) != "":
		if os.Getenv(envKey) == "" || os.Getenv(envCertificates) == "" {
			return nil, fmt.Errorf("%s needs %s and %s", envModule, envKey, envCertificates)
		}
		args = []string{"-pkcs11module", os.Getenv(envModule), "-key", os.Getenv(envKey), "-certs", os.Getenv(envCertificates)}
	default:
		return nil, errNoKey
	}
	if os.Getenv(envPassword) != "" {
		args = append(args, "-readpass", "/dev/stdin") // never on a command line
	}
	authority := os.Getenv(envTimestamp)
	if authority == "" {
		authority = defaultTimestamp
	}
	if authority != noTimestamp {
		args = append(args, "-ts", authority)
	}
	return args, nil
}

// sign puts an Authenticode signature into a program for Windows. One that should have
// been signed and was not is removed, so that it cannot be shipped.
func sign(file, when string) error {
	if when == signNever {
		return nil
	}
	args, err := signing()
	if errors.Is(err, errNoKey) && when == ifPossible {
		log.Printf("%s is not signed: %v", filepath.Base(file), err)
		return nil
	}
	if err == nil {
		err = osslsigncode(file, args)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("sign %s: %w", filepath.Base(file), err), os.Remove(file))
	}
	return nil
}

func osslsigncode(file string, key []string) error {
	signed := file + ".signed"
	args := append([]string{"sign", "-h", "sha256", "-n", "gpu-agent", "-i", "https://github.com/gpufleet/terraform-provider-gpu"}, key...)
	cmd := exec.Command("osslsigncode", append(args, "-in", file, "-out", signed)...) //nolint:noctx // ends with the tool
	cmd.Stdin = strings.NewReader(os.Getenv(envPassword))
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("there is no osslsigncode: apt-get install --no-install-recommends osslsigncode")
	case err != nil:
		_ = os.Remove(signed) // it may not be there
		return fmt.Errorf("osslsigncode: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return os.Rename(signed, file)
}
