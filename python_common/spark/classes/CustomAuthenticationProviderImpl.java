package org.apache.hive.service.auth;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.MessageDigest;
import javax.security.sasl.AuthenticationException;

/**
 * Lets in clients that know the password in the 0600 file named by the system property lakehouse.thrift.password.file.
 *
 * <p>It replaces Spark's class of this name, which would load a class that does this. To find its name, Spark's parses
 * the configuration of Hadoop and Hive at each login, and dbt logs in once for each node: a tenth of a build's CPU time.
 */
public class CustomAuthenticationProviderImpl implements PasswdAuthenticationProvider {
    public void Authenticate(String user, String password) throws AuthenticationException {
        byte[] expected;
        try {
            expected = Files.readAllBytes(Paths.get(System.getProperty("lakehouse.thrift.password.file")));
        } catch (IOException error) {
            throw new AuthenticationException("the password file cannot be read");
        }
        byte[] given = password == null ? new byte[0] : password.getBytes(StandardCharsets.UTF_8);
        if (expected.length == 0 || !MessageDigest.isEqual(expected, given)) {
            throw new AuthenticationException("wrong password");
        }
    }
}
