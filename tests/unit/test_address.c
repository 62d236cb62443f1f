/*
 * test_address.c - what addresses are, which one a host offers, and who has a port.
 */
#include <stdlib.h>
#include <unistd.h>

#include "dist/comm/address_impl.h"
#include "test.h"

static const struct {
    const char *address;
    bool        loopback, any;
} kinds[] = {
    {"127.0.0.1", true, false},        {"127.0.1.1", true, false},
    {"127.255.255.255", true, false},  {"::1", true, false},
    {"::ffff:127.0.0.1", true, false}, {"::ffff:10.0.0.1", false, false},
    {"128.0.0.1", false, false},       {"10.0.0.127", false, false},
    {"0.0.0.0", false, true},          {"::", false, true},
    {"2001:db8::1", false, false},
};

static void check_kinds(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ls__tcp_address a;
        char            text[64];
        TEST_ROW(kinds[i].address);
        CHECK_OK(ls__tcp_resolve(kinds[i].address, 80, &a));
        CHECK(ls__address_is_loopback(&a) == kinds[i].loopback);
        CHECK(ls__address_is_any(&a) == kinds[i].any);
        CHECK(!strcmp(ls__address_text(&a, text), kinds[i].address));
    }
}

static void check_names(void)
{
    ls__tcp_address found[LS__ADDRESSES];
    const char     *reason = "";

    TEST_ROW("localhost");
    for (int far = 0; far < 2; far++) {
        int n = ls__address_find("localhost", far, found, &reason);
        CHECK(n >= 1);
        for (int i = 0; i < n; i++)
            CHECK(ls__address_is_loopback(&found[i]) && ls__address_is_ours(&found[i]));
    }
    TEST_ROW("a number stays what it is");
    CHECK(ls__address_find("127.0.1.1", true, found, &reason) == 1 &&
          ls__address_is_loopback(&found[0]));
    CHECK(ls__address_find("192.0.2.77", true, found, &reason) == 1 &&
          !ls__address_is_ours(&found[0]));
    TEST_ROW("no such name");
    CHECK(ls__address_find("no such name", false, found, &reason) == 0 && reason[0]);
}

/* Of a route by loopback; namespaces test the others. */
static const struct {
    const char *interface, *route, *address, *text;
} choices[] = {
    {NULL, "127.0.0.1", "127.0.0.1", NULL},
    {"", "127.0.0.1", "127.0.0.1", NULL},
    {NULL, "192.0.2.1", "192.0.2.1", NULL},
    {"lo", "127.0.0.1", "127.0.0.1", NULL},
    {"127.0.0.1", "127.0.0.1", "127.0.0.1", NULL},
    {"nosuch0", "127.0.0.1", NULL, "there are: lo (127.0.0.1"},
    {"192.0.2.9", "127.0.0.1", NULL, "no interface and no address of this host is called so"},
    {"lo", "192.0.2.1", NULL, "is loopback, which ranks that come by 192.0.2.1 cannot reach"},
    {"127.0.0.1", "192.0.2.1", NULL, "is loopback"},
    {"^l,e,w,b,v,d,t,u,i,s", "127.0.0.1", NULL, "leaves no address"},
};

static void check_choices(void)
{
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        char address[64] = "";
        TEST_ROW(choices[i].interface ? choices[i].interface : "route");
        if (choices[i].text)
            CHECK_FAILS(ls__address_choose(choices[i].interface, choices[i].route, address),
                        LS_ECONFIG, choices[i].text);
        else if (CHECK_OK(ls__address_choose(choices[i].interface, choices[i].route, address)))
            CHECK(!strcmp(address, choices[i].address));
    }
}

static void check_owner(const char *address)
{
    ls_tcp_listener l;
    char            text[160], due[40];

    TEST_ROW(address);
    if (ls_tcp_listen(address, 0, 0, &l)) {
        printf("address: %s\n", ls_error_message()); /* a host without IPv6 */
        return;
    }
    snprintf(due, sizeof due, "pid %ld (", (long)getpid());
    CHECK(!strncmp(ls__port_owner(address, l.port, text, sizeof text), due, strlen(due)));
    CHECK(strstr(text, "test_address") != NULL);
    ls_tcp_listener_close(&l);
    CHECK(!strcmp(ls__port_owner(address, l.port, text, sizeof text), ""));
}

int main(void)
{
    check_kinds();
    check_names();
    check_choices();
    check_owner("127.0.0.1");
    check_owner("::1");
    check_owner("0.0.0.0");
    return test_summary("address");
}
