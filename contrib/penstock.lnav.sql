-- SPDX-License-Identifier: Apache-2.0
-- Events of penstock's logs as tables of lnav. lnav itself parses the lines as
-- logfmt, but does not recognise their levels:
--
--   mkdir -p ~/.config/lnav/formats/penstock     (or ~/.lnav/...)
--   cp penstock.lnav.sql ~/.config/lnav/formats/penstock/
--   lnav log/                  and there:
--   ;SELECT * FROM penstock_events WHERE level IN ('warn', 'error')
--   ;SELECT step, loss, tok_s FROM penstock_steps

CREATE VIEW IF NOT EXISTS penstock_events AS
SELECT log_line, log_time AS time,
       substr(log_raw_text, instr(log_raw_text, ' level=') + 7,
              instr(log_raw_text, ' rank=') - instr(log_raw_text, ' level=') - 7)
           AS level,
       jget(fields, '/rank') AS rank,
       jget(fields, '/stage') AS stage,
       jget(fields, '/job') AS job,
       jget(fields, '/event') AS event,
       CAST(jget(fields, '/seq') AS INTEGER) AS seq,
       CAST(jget(fields, '/step') AS INTEGER) AS step,
       jget(fields, '/text') AS text
  FROM logfmt_log
 WHERE jget(fields, '/event') IS NOT NULL;

CREATE VIEW IF NOT EXISTS penstock_steps AS
SELECT log_line, log_time AS time,
       jget(fields, '/job') AS job,
       jget(fields, '/rank') AS rank,
       CAST(jget(fields, '/step') AS INTEGER) AS step,
       CAST(jget(fields, '/loss') AS REAL) AS loss,
       CAST(jget(fields, '/lr') AS REAL) AS lr,
       CAST(jget(fields, '/grad_norm') AS REAL) AS grad_norm,
       CAST(jget(fields, '/step_s') AS REAL) AS step_s,
       CAST(jget(fields, '/tok_s') AS REAL) AS tok_s,
       CAST(jget(fields, '/bubble') AS REAL) AS bubble
  FROM logfmt_log
 WHERE jget(fields, '/event') = 'step';
